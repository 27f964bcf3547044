import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { followSizes, storeForSizes } from './built-ins.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks, lockLabels } from './changes/tasks.ts';
import { normaliseMac } from './mac.ts';
import { labelsOfStore, requireStore } from './stores.ts';

export const pageStates = ['waiting', 'processing', 'shown', 'timeout', 'failed'] as const;
export type PageState = (typeof pageStates)[number];

export interface Label {
  readonly id: string;
  readonly mac: string;
  readonly store: string;
  readonly type: string;
  readonly createdAt: Date;
  readonly battery: string | null;
  readonly seenAt: Date | null;
  /** Of the page that is furthest from being shown; null: nothing was ever assigned. */
  readonly state: PageState | null;
}

/** What a page should show, and its state. */
export interface LabelPage {
  readonly page: number;
  /** Null: cleared. */
  readonly sku: string | null;
  readonly template: string | null;
  readonly state: PageState;
  readonly wantedJob: string | null;
  readonly wantedAt: Date | null;
  readonly acceptedHash: string | null;
  readonly acceptedAt: Date | null;
  readonly shownHash: string | null;
  readonly shownAt: Date | null;
  readonly error: string | null;
}

export interface NewLabel {
  readonly mac: string;
  readonly store: string;
  readonly type: string;
}

/** Labels in one call. */
export const mostLabels = 1000;

const columns = `l.id, l.mac, s.code as store, y.name as type, l.created_at as "createdAt", l.battery,
  l.seen_at as "seenAt",
  (select g.state from labels.pages g where g.label_id = l.id
    order by array_position(array['failed', 'timeout', 'waiting', 'processing', 'shown'], g.state) limit 1) as state`;
const from = `labels.labels l join labels.stores s on s.id = l.store_id join labels.label_types y on y.id = l.type_id`;

/** Adds labels, or changes the type of existing ones. A label that shows products cannot change its store. */
export async function putLabels(
  change: Change,
  labels: readonly NewLabel[],
): Promise<{ readonly added: number; readonly changed: number }> {
  const { tx, tenantId } = change;
  const wanted = checkedLabels(labels);
  // The lock order of this app: stores, types, labels.
  const stores = await heldIds(change, 'stores', 'code', [...new Set(labels.map(({ store }) => store))]);
  const types = await heldIds(change, 'label_types', 'name', [...new Set(labels.map(({ type }) => type))]);
  const macs = [...wanted.keys()].sort();
  const { rows: sizes } = await tx.query<{ width: number; height: number }>(
    'select distinct width, height from labels.label_types where id = any ($1)',
    [[...types.values()]],
  );
  await storeForSizes(tx, tenantId, { macs }, sizes);
  const { rows: added } = await tx.query<{ id: string }>(
    `insert into labels.labels (tenant_id, mac, store_id, type_id)
     select $1, u.mac, u.store_id, u.type_id from unnest($2::text[], $3::bigint[], $4::bigint[]) as u (mac, store_id, type_id)
      where not exists (select 1 from labels.labels l where l.tenant_id = $1 and l.mac = u.mac)
      order by u.mac collate "C"
     on conflict do nothing returning id`,
    [
      tenantId,
      macs,
      macs.map((mac) => stores.get(wanted.get(mac)?.store ?? '')),
      macs.map((mac) => types.get(wanted.get(mac)?.type ?? '')),
    ],
  );
  const ids = await lockByMac(change, macs);
  const { rows } = await tx.query<{ id: string; mac: string; store: string; type: string; shows: boolean }>(
    `select l.id, l.mac, s.code as store, y.name as type,
            exists (select 1 from labels.pages g where g.label_id = l.id and g.product_id is not null) as shows
       from ${from} where l.id = any ($1)`,
    [[...ids.values()]],
  );
  const moved = rows.filter(({ mac, store }) => wanted.get(mac)?.store !== store);
  const shows = moved.find((label) => label.shows);
  if (shows)
    throw new TallymanError(
      'BAD_STATE',
      `label ${shows.mac} shows products of store "${shows.store}"; clear it before it goes to another`,
    );
  const retyped = rows.filter(({ mac, type }) => wanted.get(mac)?.type !== type);
  const changed = [...new Set([...moved, ...retyped])];
  if (changed.length > 0)
    await tx.query(
      `update labels.labels l set store_id = u.store_id, type_id = u.type_id
         from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as u (id, store_id, type_id) where l.id = u.id`,
      [
        changed.map(({ id }) => id),
        changed.map(({ mac }) => stores.get(wanted.get(mac)?.store ?? '')),
        changed.map(({ mac }) => types.get(wanted.get(mac)?.type ?? '')),
      ],
    );
  await requirePages(tx, retyped);
  if (retyped.length > 0)
    await followSizes(
      tx,
      retyped.map(({ id }) => id),
    );
  await enqueueTasks(
    change,
    changed.map(({ id }) => id),
    () => true,
  );
  return { added: added.length, changed: changed.length };
}

/** Labels keep their last image. Tasks that are running find no label and end. */
export async function removeLabels(change: Change, macs: readonly string[]): Promise<void> {
  const ids = await lockByMac(change, macs.map(normaliseMac));
  await change.tx.query('delete from labels.labels where id = any ($1)', [[...ids.values()]]);
}

/**
 * Pushes images again, also those that the gateway already has. Of `macs`, or of all labels of a store.
 * Returns how many labels have something to show.
 */
export async function resync(
  change: Change,
  what: { readonly macs: readonly string[] } | { readonly store: string },
): Promise<number> {
  if ('store' in what) {
    const store = await requireStore(change.tx, change.tenantId, what.store);
    return resyncLabels(change, await labelsOfStore(change.tx, store.id));
  }
  const ids = await lockByMac(change, what.macs.map(normaliseMac));
  return resyncLabels(change, [...ids.values()]);
}

/** By their ids; `touches` selects pages. Labels that no longer exist are skipped. */
export async function resyncLabels(
  change: Change,
  ids: readonly string[],
  touches: (page: { readonly labelId: string; readonly page: number }) => boolean = () => true,
): Promise<number> {
  await lockLabels(change, ids);
  return enqueueTasks(change, ids, touches, { resync: true });
}

/** Ids by MAC of existing labels, now locked; throws for an unknown MAC. */
export async function lockByMac(
  { tx, tenantId }: Change,
  macs: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await tx.query<{ id: string; mac: string }>(
    'select id, mac from labels.labels where tenant_id = $1 and mac = any ($2) order by mac for no key update',
    [tenantId, macs],
  );
  const ids = new Map(rows.map(({ id, mac }) => [mac, id]));
  const missing = macs.find((mac) => !ids.has(mac));
  if (missing !== undefined) throw noLabel(missing);
  return ids;
}

/** Newest first. */
export async function listLabels(
  on: Queryable,
  tenantId: string,
  filter: { readonly store?: string; readonly state?: PageState; readonly sku?: string } = {},
  page: PageRequest = {},
): Promise<Page<Label>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Label>(
    `select ${columns} from ${from}
      where l.tenant_id = $1 and ($2::bigint is null or l.id < $2) and ($3::text is null or s.code = $3)
        and ($4::text is null or exists (select 1 from labels.pages g where g.label_id = l.id and g.state = $4))
        and ($5::text is null or exists (select 1 from labels.pages g join labels.products p on p.id = g.product_id
                                          where g.label_id = l.id and p.sku = $5))
      order by l.id desc limit $6`,
    [tenantId, cursor, filter.store ?? null, filter.state ?? null, filter.sku ?? null, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** With its pages. */
export async function requireLabel(
  on: Queryable,
  tenantId: string,
  given: string,
): Promise<Label & { readonly pages: readonly LabelPage[] }> {
  const mac = normaliseMac(given);
  const { rows } = await on.query<Label>(
    `select ${columns} from ${from} where l.tenant_id = $1 and l.mac = $2`,
    [tenantId, mac],
  );
  const [label] = rows;
  if (!label) throw noLabel(mac);
  const { rows: pages } = await on.query<LabelPage>(
    `select g.page, p.sku, t.name as template, g.state, g.wanted_job as "wantedJob", g.wanted_at as "wantedAt",
            g.accepted_hash as "acceptedHash", g.accepted_at as "acceptedAt", g.shown_hash as "shownHash",
            g.shown_at as "shownAt", g.error
       from labels.pages g left join labels.products p on p.id = g.product_id
       left join labels.templates t on t.id = g.template_id
      where g.label_id = $1 order by g.page`,
    [label.id],
  );
  return { ...label, pages };
}

export const noLabel = (mac: string): TallymanError =>
  new TallymanError('NOT_FOUND', `there is no label ${mac}`);

function checkedLabels(labels: readonly NewLabel[]): ReadonlyMap<string, NewLabel> {
  if (labels.length === 0 || labels.length > mostLabels)
    throw new TallymanError('BAD_OPTION', `give 1 to ${mostLabels} labels at a time, not ${labels.length}`);
  const wanted = new Map<string, NewLabel>();
  for (const label of labels) {
    const mac = normaliseMac(label.mac);
    if (wanted.has(mac)) throw new TallymanError('BAD_OPTION', `label ${mac} is given twice`);
    wanted.set(mac, label);
  }
  return wanted;
}

/** Ids by name, locked FOR SHARE: a transaction that changes one waits until this commits, and then finds our labels. */
async function heldIds(
  { tx, tenantId }: Change,
  table: 'stores' | 'label_types',
  key: 'code' | 'name',
  names: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await tx.query<{ id: string; name: string }>(
    `select id, ${key} as name from labels.${table} where tenant_id = $1 and ${key} = any ($2) order by ${key} for share`,
    [tenantId, names],
  );
  const ids = new Map(rows.map(({ id, name }) => [name, id]));
  const missing = names.find((name) => !ids.has(name));
  if (missing !== undefined)
    throw new TallymanError(
      'NOT_FOUND',
      `there is no ${table === 'stores' ? 'store' : 'label type'} "${missing}"`,
    );
  return ids;
}

async function requirePages(tx: Queryable, labels: readonly { readonly id: string }[]): Promise<void> {
  const { rows } = await tx.query<{ mac: string; page: number; type: string; pages: number }>(
    `select l.mac, g.page, y.name as type, y.pages from ${from} join labels.pages g on g.label_id = l.id
      where l.id = any ($1) and g.page > y.pages and g.product_id is not null limit 1`,
    [labels.map(({ id }) => id)],
  );
  const [row] = rows;
  if (row)
    throw new TallymanError(
      'BAD_STATE',
      `label ${row.mac} shows a product on page ${row.page}; the type "${row.type}" has ${row.pages}`,
    );
}
