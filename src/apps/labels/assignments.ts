import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireWhole } from '../../engine/validate.ts';
import { builtInName, isBuiltIn, storeBuiltIns } from './built-ins.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks } from './changes/tasks.ts';
import { lockByMac, mostLabels, noLabel } from './labels.ts';
import { normaliseMac } from './mac.ts';
import { noProduct } from './products.ts';

export interface Assignment {
  readonly mac: string;
  /** From 1. Default 1. */
  readonly page?: number;
  /** A product of the label's store. */
  readonly sku: string;
  /** Default: the built-in one of the label's size. */
  readonly template?: string;
}

interface Target {
  readonly mac: string;
  readonly page: number;
}

interface LabelRow {
  readonly id: string;
  readonly mac: string;
  readonly storeId: string;
  readonly store: string;
  readonly pages: number;
  readonly width: number;
  readonly height: number;
}

/**
 * Shows products on pages of labels, each through a template or the built-in one of its size. All of them or, with an error, none. Returns how many
 * labels get a new image; an assignment that exists already changes nothing.
 *
 * Locks products and templates FOR SHARE before any label. A transaction that changes one of them has either committed, and
 * is read here, or waits until this commits, and then finds these labels among those that show it. Without the lock, a
 * change between our read and our commit would be in neither of the two tasks.
 */
export async function assign(change: Change, assignments: readonly Assignment[]): Promise<number> {
  const { tx, tenantId } = change;
  const wanted = checked(assignments);
  const known = await labelsOf(tx, tenantId, [...new Set(wanted.map(({ mac }) => mac))]);
  const products = await holdProducts(
    tx,
    wanted.map(({ mac, sku }) => ({ label: known.get(mac) as LabelRow, sku })),
  );
  const templateOf = ({ mac, template }: Assignment): string =>
    template ?? builtInName(known.get(mac) as LabelRow);
  const templates = await holdTemplates(tx, tenantId, [...new Set(wanted.map(templateOf))]);
  await lockByMac(change, [...known.keys()]);
  // Read again under the lock: a label may have moved to another store, or have another type.
  const held = await labelsOf(tx, tenantId, [...known.keys()]);
  for (const { mac, page } of wanted) {
    const label = held.get(mac) as LabelRow;
    if (label.storeId !== known.get(mac)?.storeId)
      throw new TallymanError('BAD_STATE', `label ${mac} went to another store meanwhile; try again`);
    if (builtInName(label) !== builtInName(known.get(mac) as LabelRow))
      throw new TallymanError('BAD_STATE', `label ${mac} got another size meanwhile; try again`);
    if (page > label.pages)
      throw new TallymanError(
        'BAD_OPTION',
        `label ${mac} has ${label.pages} pages; there is no page ${page}`,
      );
  }
  const { rows } = await tx.query<{ labelId: string; page: number }>(
    `insert into labels.pages as g (label_id, page, tenant_id, product_id, template_id)
     select u.label_id, u.page, $1, u.product_id, u.template_id
       from unnest($2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[]) as u (label_id, page, product_id, template_id)
      order by u.label_id, u.page
     on conflict (label_id, page) do update
        set product_id = excluded.product_id, template_id = excluded.template_id
      where (g.product_id, g.template_id) is distinct from (excluded.product_id, excluded.template_id)
     returning label_id as "labelId", page`,
    [
      tenantId,
      wanted.map(({ mac }) => held.get(mac)?.id),
      wanted.map(({ page }) => page),
      wanted.map(({ mac, sku }) => products.get(`${held.get(mac)?.storeId} ${sku}`)),
      wanted.map((assignment) => templates.get(templateOf(assignment))),
    ],
  );
  return enqueueFor(change, rows);
}

/** Clears pages: they become blank. A page that already shows nothing stays as it is. */
export async function unassign(change: Change, targets: readonly Partial<Target>[]): Promise<number> {
  const { tx } = change;
  const wanted = targets.map(({ mac = '', page = 1 }) => ({ mac: normaliseMac(mac), page }));
  for (const { page } of wanted) requireWhole(page, 'page', 1, 16);
  const ids = await lockByMac(change, [...new Set(wanted.map(({ mac }) => mac))]);
  const { rows } = await tx.query<{ labelId: string; page: number }>(
    `update labels.pages g set product_id = null, template_id = null
       from unnest($1::bigint[], $2::smallint[]) as u (label_id, page)
      where g.label_id = u.label_id and g.page = u.page and g.product_id is not null
     returning g.label_id as "labelId", g.page`,
    [wanted.map(({ mac }) => ids.get(mac)), wanted.map(({ page }) => page)],
  );
  return enqueueFor(change, rows);
}

function enqueueFor(
  change: Change,
  pages: readonly { readonly labelId: string; readonly page: number }[],
): Promise<number> {
  const touched = new Set(pages.map(({ labelId, page }) => `${labelId} ${page}`));
  const ids = [...new Set(pages.map(({ labelId }) => labelId))];
  return enqueueTasks(change, ids, ({ labelId, page }) => touched.has(`${labelId} ${page}`));
}

async function labelsOf(
  tx: Queryable,
  tenantId: string,
  macs: readonly string[],
): Promise<ReadonlyMap<string, LabelRow>> {
  const { rows } = await tx.query<LabelRow>(
    `select l.id, l.mac, l.store_id as "storeId", s.code as store, y.pages, y.width, y.height
       from labels.labels l join labels.stores s on s.id = l.store_id join labels.label_types y on y.id = l.type_id
      where l.tenant_id = $1 and l.mac = any ($2)`,
    [tenantId, macs],
  );
  const labels = new Map(rows.map((row) => [row.mac, row]));
  const missing = macs.find((mac) => !labels.has(mac));
  if (missing !== undefined) throw noLabel(missing);
  return labels;
}

/** Ids by store and SKU, locked in the order in which put_products locks them. */
async function holdProducts(
  tx: Queryable,
  wanted: readonly { readonly label: LabelRow; readonly sku: string }[],
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await tx.query<{ id: string; storeId: string; sku: string }>(
    `select p.id, p.store_id as "storeId", p.sku from labels.products p
      where (p.store_id, p.sku) in (select * from unnest($1::bigint[], $2::text[]))
      order by p.store_id, p.sku for share`,
    [wanted.map(({ label }) => label.storeId), wanted.map(({ sku }) => sku)],
  );
  const ids = new Map(rows.map(({ id, storeId, sku }) => [`${storeId} ${sku}`, id]));
  const missing = wanted.find(({ label, sku }) => !ids.has(`${label.storeId} ${sku}`));
  if (missing) throw noProduct(missing.label.store, missing.sku);
  return ids;
}

async function holdTemplates(
  tx: Queryable,
  tenantId: string,
  names: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  await storeBuiltIns(tx, tenantId, names.filter(isBuiltIn));
  const { rows } = await tx.query<{ id: string; name: string }>(
    'select id, name from labels.templates where tenant_id = $1 and name = any ($2) order by name for share',
    [tenantId, names],
  );
  const ids = new Map(rows.map(({ id, name }) => [name, id]));
  const missing = names.find((name) => !ids.has(name));
  if (missing !== undefined) throw new TallymanError('NOT_FOUND', `there is no label template "${missing}"`);
  return ids;
}

function checked(assignments: readonly Assignment[]): (Target & Assignment & { readonly page: number })[] {
  if (assignments.length === 0 || assignments.length > mostLabels)
    throw new TallymanError(
      'BAD_OPTION',
      `give 1 to ${mostLabels} assignments at a time, not ${assignments.length}`,
    );
  const seen = new Set<string>();
  return assignments.map((assignment) => {
    const { page = 1 } = assignment;
    const mac = normaliseMac(assignment.mac);
    requireWhole(page, 'page', 1, 16);
    if (seen.has(`${mac} ${page}`))
      throw new TallymanError('BAD_OPTION', `page ${page} of label ${mac} is given twice`);
    seen.add(`${mac} ${page}`);
    return { ...assignment, mac, page };
  });
}
