import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import {
  builtInTemplate,
  type Palette,
  type Panel,
  palettes,
  readTemplate,
  standardSizes,
} from './render/index.ts';

/** A template that comes with Tallyman. It adapts to the palette of the panel. */
export interface BuiltInTemplate {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly palettes: readonly Palette[];
  /** Values that a product must have. */
  readonly placeholders: readonly string[];
}

type Size = Pick<Panel, 'width' | 'height'>;

export const builtInName = ({ width, height }: Size): string => `built-in-${width}x${height}`;

/** Of any size, the standard ones and others; undefined for other names. */
function sizeIn(name: string): Size | undefined {
  const [, width, height] = /^built-in-([1-9]\d{0,3})x([1-9]\d{0,3})$/.exec(name) ?? [];
  return width === undefined ? undefined : { width: Number(width), height: Number(height) };
}

export const isBuiltIn = (name: string): boolean => sizeIn(name) !== undefined;

/** Those of the standard sizes. */
export const listBuiltIns = (): readonly BuiltInTemplate[] => standardSizes.map(described);

/** One of any size, with its text. */
export function requireBuiltIn(name: string): BuiltInTemplate & { readonly svg: string } {
  const size = sizeIn(name);
  if (!size)
    throw new TallymanError(
      'NOT_FOUND',
      `there is no built-in template "${name}"; their names are like ${builtInName(standardSizes[0])}`,
    );
  return { ...described(size), svg: builtInTemplate(size) };
}

const placeholders = new Map<string, readonly string[]>();
const mostSizes = 200;

/** These templates are ours, and read in this process. */
function placeholdersOf(size: Size): readonly string[] {
  const name = builtInName(size);
  const known = placeholders.get(name);
  if (known) return known;
  const found = readTemplate(builtInTemplate(size)).placeholders;
  if (placeholders.size >= mostSizes) placeholders.clear();
  placeholders.set(name, found);
  return found;
}

const described = (size: Size): BuiltInTemplate => ({
  name: builtInName(size),
  width: size.width,
  height: size.height,
  palettes,
  placeholders: placeholdersOf(size),
});

/**
 * Stores built-in templates under their names, so that pages can show them. After an update of Tallyman with another
 * design this makes a new version; a label takes it with its next image, so that an update does not redraw whole stores.
 *
 * Call it before labels are locked: the lock order of this app is templates, labels.
 */
export async function storeBuiltIns(
  tx: Queryable,
  tenantId: string,
  names: readonly string[],
): Promise<void> {
  const wanted = [...new Set(names)].sort();
  if (wanted.length === 0) return;
  const texts = new Map(wanted.map((name) => [name, requireBuiltIn(name).svg]));
  const outdated = async (): Promise<string[]> => {
    const { rows } = await tx.query<{ name: string; svg: string | null }>(
      `select t.name, v.svg from labels.templates t left join labels.template_versions v on v.id = t.version_id
        where t.tenant_id = $1 and t.name = any ($2)`,
      [tenantId, wanted],
    );
    const stored = new Map(rows.map(({ name, svg }) => [name, svg]));
    return wanted.filter((name) => stored.get(name) !== texts.get(name));
  };
  const missing = await outdated();
  if (missing.length === 0) return;
  await tx.query(
    `insert into labels.templates (tenant_id, name, built_in)
     select $1, u.name, true from unnest($2::text[]) as u (name) order by u.name collate "C" on conflict do nothing`,
    [tenantId, missing],
  );
  await tx.query(
    'select 1 from labels.templates where tenant_id = $1 and name = any ($2) order by name for no key update',
    [tenantId, missing],
  );
  // Read again under the lock: another transaction may have made the version meanwhile.
  const lacking = await outdated();
  await tx.query(
    `with made as (
       insert into labels.template_versions (template_id, tenant_id, version, svg)
       select t.id, t.tenant_id, t.version + 1, u.svg
         from unnest($2::text[], $3::text[]) as u (name, svg)
         join labels.templates t on t.tenant_id = $1 and t.name = u.name
       returning id, template_id, version)
     update labels.templates t set version_id = m.id, version = m.version from made m where t.id = m.template_id`,
    [tenantId, lacking, lacking.map((name) => texts.get(name))],
  );
}

/** Stores those that labels need which show a built-in template and are to have panels of these sizes. */
export async function storeForSizes(
  tx: Queryable,
  tenantId: string,
  labels: { readonly macs: readonly string[] } | { readonly type: string },
  sizes: readonly Size[],
): Promise<void> {
  const [condition, value] =
    'macs' in labels ? ['l.mac = any ($2)', labels.macs] : ['l.type_id = $2', labels.type];
  const { rows } = await tx.query(
    `select 1 from labels.labels l join labels.pages g on g.label_id = l.id
       join labels.templates t on t.id = g.template_id
      where l.tenant_id = $1 and ${condition} and t.built_in limit 1`,
    [tenantId, value],
  );
  if (rows.length > 0) await storeBuiltIns(tx, tenantId, sizes.map(builtInName));
}

/** Gives pages with a built-in template that of their label's size. The caller has locked the labels. */
export async function followSizes(tx: Queryable, labelIds: readonly string[]): Promise<void> {
  await tx.query(
    `update labels.pages g set template_id = n.id
       from labels.labels l
       join labels.label_types y on y.id = l.type_id
       join labels.templates n on n.tenant_id = l.tenant_id and n.built_in
        and n.name = 'built-in-' || y.width || 'x' || y.height
      where g.label_id = any ($1) and l.id = g.label_id and g.template_id <> n.id
        and exists (select 1 from labels.templates t where t.id = g.template_id and t.built_in)`,
    [labelIds],
  );
}
