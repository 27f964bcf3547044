import { wakeAfterCommit } from '../../../engine/database/after-commit.ts';
import type { Panel } from '../render/index.ts';
import type { Change } from './change.ts';
import { checkImages } from './check.ts';

/** The queue of tasks. */
export const pushQueue = 'labels';

/** What one page is to show, as it was when the change was made. */
export interface PageSnapshot {
  readonly page: number;
  /** The version of the template; null: the page is blank. */
  readonly template: string | null;
  readonly values: Readonly<Record<string, string>>;
}

/** The payload of a task. */
export interface LabelTask {
  /** The label's id: a label that was removed and added again has another id. */
  readonly label: string;
  readonly mac: string;
  readonly panel: Panel;
  readonly pages: readonly PageSnapshot[];
}

/** A page with everything that its image depends on. */
export interface PageRow {
  readonly labelId: string;
  readonly mac: string;
  readonly latestOnly: boolean;
  readonly panel: Panel;
  readonly page: number;
  readonly productId: string | null;
  readonly templateId: string | null;
  readonly versionId: string | null;
  readonly svg: string | null;
  readonly values: Readonly<Record<string, string>>;
}

/** The labels that show one of these. Relies on pages_of_product and pages_of_template. */
export async function labelsShowing(
  { tx }: Change,
  what: { readonly products: readonly string[] } | { readonly templates: readonly string[] },
): Promise<string[]> {
  const [column, ids] =
    'products' in what
      ? (['product_id', what.products] as const)
      : (['template_id', what.templates] as const);
  const { rows } = await tx.query<{ id: string }>(
    `select distinct label_id as id from labels.pages where ${column} = any ($1)`,
    [ids],
  );
  return rows.map(({ id }) => id);
}

/**
 * Locks the labels until the commit, in the order of their MACs, so that two changes wait for each other and never deadlock.
 *
 * Invariant: a later statement reads what labels are to show, so it sees everything committed before the locks were
 * granted. If two transactions touch one label (one its product, the other its template), the second one to get the lock
 * reads what the first has written. Its task comes later in the lane, and shows both changes.
 */
export async function lockLabels({ tx }: Change, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await tx.query('select 1 from labels.labels where id = any ($1) order by mac for no key update', [ids]);
}

/**
 * Adds one task for each label that has a page for which `touches` is true. It reads the pages again under the lock: a label
 * that moved to another product before it was locked is no longer touched. The caller has locked the labels.
 *
 * If a store wants only the latest change, a task holds all pages of its label, because it replaces earlier tasks.
 * Returns the number of tasks. Workers are woken when the transaction has committed, with the id of the last one.
 */
export async function enqueueTasks(
  change: Change,
  labelIds: readonly string[],
  touches: (page: PageRow) => boolean,
  options: { readonly resync?: boolean } = {},
): Promise<number> {
  if (labelIds.length === 0) return 0;
  const tasks = [];
  const changed: PageRow[] = [];
  for (const pages of byLabel(await readPages(change, labelIds))) {
    const touched = pages.filter(touches);
    const [first] = touched;
    if (!first) continue;
    const told = first.latestOnly ? pages : touched;
    changed.push(...told);
    tasks.push({
      label: first.labelId,
      mac: first.mac,
      latest: first.latestOnly,
      resync: options.resync ?? false,
      pages: told.map(({ page }) => page),
      payload: taskOf(first, told),
    });
  }
  if (tasks.length === 0) return 0;
  await checkImages(change, changed);
  const { rows } = await change.tx.query<{ jobId: string }>(
    'select (labels.enqueue_tasks($1, $2, $3))[$4]::text as "jobId"',
    [change.tenantId, JSON.stringify(tasks), change.correlationId ?? null, tasks.length],
  );
  wakeAfterCommit(
    change.tx,
    rows.map(({ jobId }) => ({ queue: pushQueue, jobId })),
  );
  return tasks.length;
}

const taskOf = ({ labelId, mac, panel }: PageRow, pages: readonly PageRow[]): LabelTask => ({
  label: labelId,
  mac,
  panel,
  pages: pages.map(({ page, versionId, values }) => ({ page, template: versionId, values })),
});

interface Row {
  readonly labelId: string;
  readonly mac: string;
  readonly latestOnly: boolean;
  readonly width: number;
  readonly height: number;
  readonly palette: Panel['palette'];
  readonly page: number;
  readonly productId: string | null;
  readonly templateId: string | null;
  readonly versionId: string | null;
  readonly sku: string | null;
  readonly name: string;
  readonly price: string | null;
  readonly attributes: Readonly<Record<string, string>>;
  readonly currency: string | null;
  readonly locale: string | null;
}

/** Every page of these labels that was ever assigned, in the order of MAC and page. */
export async function readPages({ tx }: Pick<Change, 'tx'>, labelIds: readonly string[]): Promise<PageRow[]> {
  const { rows } = await tx.query<Row>(
    `select l.id as "labelId", l.mac, s.latest_only as "latestOnly", y.width, y.height, y.palette, g.page,
            g.product_id as "productId", g.template_id as "templateId", t.version_id as "versionId",
            p.sku, p.name, p.price::text as price, p.attributes, s.currency, s.locale
       from labels.labels l
       join labels.stores s on s.id = l.store_id
       join labels.label_types y on y.id = l.type_id
       join labels.pages g on g.label_id = l.id
       left join labels.products p on p.id = g.product_id
       left join labels.templates t on t.id = g.template_id
      where l.id = any ($1) order by l.mac, g.page`,
    [labelIds],
  );
  const versions = [...new Set(rows.flatMap(({ versionId }) => versionId ?? []))];
  const designs = await readDesigns({ tx }, versions);
  return rows.map(({ width, height, palette, sku, name, price, attributes, currency, locale, ...row }) => ({
    ...row,
    panel: { width, height, palette },
    svg: row.versionId === null ? null : (designs.get(row.versionId) ?? null),
    values: sku === null ? {} : valuesOf({ sku, name, price, attributes, currency, locale }),
  }));
}

/** The text of template versions. A version never changes. */
export async function readDesigns(
  { tx }: Pick<Change, 'tx'>,
  versions: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (versions.length === 0) return new Map();
  const { rows } = await tx.query<{ id: string; svg: string }>(
    'select id, svg from labels.template_versions where id = any ($1)',
    [versions],
  );
  return new Map(rows.map(({ id, svg }) => [id, svg]));
}

/** The values for placeholders. The product's own columns win over attributes of the same name. */
export function valuesOf({
  sku,
  name,
  price,
  attributes,
  currency,
  locale,
}: Pick<Row, 'name' | 'price' | 'attributes' | 'currency' | 'locale'> & { readonly sku: string }): Record<
  string,
  string
> {
  return {
    ...(currency !== null && { currency }),
    ...(locale !== null && { locale }),
    ...attributes,
    sku,
    name,
    ...(price !== null && { price }),
  };
}

function byLabel(rows: readonly PageRow[]): PageRow[][] {
  const groups: PageRow[][] = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last && last[0]?.labelId === row.labelId) last.push(row);
    else groups.push([row]);
  }
  return groups;
}
