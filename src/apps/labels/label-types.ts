import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireText, requireWhole } from '../../engine/validate.ts';
import { followSizes, storeForSizes } from './built-ins.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks, lockLabels } from './changes/tasks.ts';
import type { Palette } from './render/index.ts';

/** A type of label: what its screen can show. */
export interface LabelType {
  readonly id: string;
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly palette: Palette;
  readonly pages: number;
}

export type LabelTypeSettings = Omit<LabelType, 'id' | 'pages'> & {
  /** Default 1. */
  readonly pages?: number;
};

export const palettes = ['bw', 'bwr', 'bwy'] as const;

const columns = 'id, name, width, height, palette, pages';

/** Makes a type, or changes it; labels of a type whose panel changes get new images. */
export async function putLabelType(change: Change, given: LabelTypeSettings): Promise<LabelType> {
  const { tx, tenantId } = change;
  const { name, width, height, palette, pages = 1 } = given;
  requireText(name, 'the name of a label type', 64);
  requireWhole(width, 'width', 1, 4096);
  requireWhole(height, 'height', 1, 4096);
  requireWhole(pages, 'pages', 1, 16);
  if (!palettes.includes(palette))
    throw new TallymanError('BAD_OPTION', `palette must be one of ${palettes.join(', ')}, got "${palette}"`);
  const { rows: changed } = await tx.query<{ id: string }>(
    `insert into labels.label_types as y (tenant_id, name, width, height, palette, pages)
     values ($1, $2, $3, $4, $5, $6)
     on conflict (tenant_id, name) do update
        set width = excluded.width, height = excluded.height, palette = excluded.palette, pages = excluded.pages
      where (y.width, y.height, y.palette, y.pages)
         is distinct from (excluded.width, excluded.height, excluded.palette, excluded.pages)
     returning id`,
    [tenantId, name, width, height, palette, pages],
  );
  const [type] = changed;
  if (type) {
    // The row is locked: a transaction that gives a label this type (FOR SHARE) waits, and then sees the change.
    const { rows } = await tx.query<{ id: string }>('select id from labels.labels where type_id = $1', [
      type.id,
    ]);
    const ids = rows.map(({ id }) => id);
    await storeForSizes(tx, tenantId, { type: type.id }, [{ width, height }]);
    await lockLabels(change, ids);
    await requireRoom(tx, ids, name, pages);
    await followSizes(tx, ids);
    await enqueueTasks(change, ids, () => true);
  }
  return requireLabelType(tx, tenantId, name);
}

async function requireLabelType(on: Queryable, tenantId: string, name: string): Promise<LabelType> {
  const { rows } = await on.query<LabelType>(
    `select ${columns} from labels.label_types where tenant_id = $1 and name = $2`,
    [tenantId, name],
  );
  const [type] = rows;
  if (!type) throw new TallymanError('NOT_FOUND', `there is no label type "${name}"`);
  return type;
}

/** All of them: there are few. */
export async function listLabelTypes(on: Queryable, tenantId: string): Promise<LabelType[]> {
  const { rows } = await on.query<LabelType>(
    `select ${columns} from labels.label_types where tenant_id = $1 order by name`,
    [tenantId],
  );
  return rows;
}

export async function removeLabelType({ tx, tenantId }: Change, name: string): Promise<void> {
  const { rows } = await tx.query<{ id: string; used: boolean }>(
    `select y.id from labels.label_types y where y.tenant_id = $1 and y.name = $2 for update`,
    [tenantId, name],
  );
  const [type] = rows;
  if (!type) throw new TallymanError('NOT_FOUND', `there is no label type "${name}"`);
  const used = await tx.query('select 1 from labels.labels where type_id = $1 limit 1', [type.id]);
  if (used.rows.length > 0)
    throw new TallymanError('BAD_STATE', `there are labels of the type "${name}"; remove those first`);
  await tx.query('delete from labels.label_types where id = $1', [type.id]);
}

async function requireRoom(
  tx: Queryable,
  labelIds: readonly string[],
  name: string,
  pages: number,
): Promise<void> {
  const { rows } = await tx.query<{ mac: string; page: number }>(
    `select l.mac, g.page from labels.pages g join labels.labels l on l.id = g.label_id
      where g.label_id = any ($1) and g.page > $2 and g.product_id is not null limit 1`,
    [labelIds, pages],
  );
  const [beyond] = rows;
  if (beyond)
    throw new TallymanError(
      'BAD_STATE',
      `label type "${name}" cannot have ${pages} pages: label ${beyond.mac} shows a product on page ${beyond.page}`,
    );
}
