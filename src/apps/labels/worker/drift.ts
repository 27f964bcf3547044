import type { Queryable } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import { messageOf } from '../../../engine/errors.ts';
import { withWorkOutside } from '../../../engine/outside-transaction.ts';
import type { LabelReport } from '../gateways/index.ts';
import { resyncLabels } from '../labels.ts';
import type { AskOptions } from './ask.ts';
import { gatewayColumns, type StoreGateway } from './gateways.ts';
import { type ComparedPage, hasDrifted } from './judge.ts';
import { TenantSlots } from './tenant-slots.ts';

interface LabelPage extends ComparedPage {
  readonly labelId: string;
  readonly mac: string;
  readonly isLeftAlone: boolean;
}

/** Labels asked about at once: a gateway that knows only lists reads its list once for all of them. */
const asked = 20_000;
/** Stores compared at once. */
const storesAtOnce = 8;
/** Where there are several tenants, no store is begun later in a round: a tenant with many slow gateways must not put off the next. */
const roundMs = 10 * 60_000;
/** Labels whose pages are compared, and locked if needed, at once. */
const batchSize = 500;

/**
 * Compares what labels should show with what their gateways report, and makes tasks for differences (LBL-8). Also finds
 * pages that the engine gave up: their task became a dead letter, was cancelled or refused, or timed out. Returns how many
 * pages had drifted. It lists the stores of all tenants; everything else runs under the store's own tenant, and no store waits for a
 * slow one of another tenant.
 */
export async function checkDrift(options: AskOptions, signal: AbortSignal): Promise<number> {
  const { rows: stores } = await options.database.query<StoreGateway>(
    `select ${gatewayColumns} from labels.stores s order by s.id`,
  );
  const slots = new TenantSlots(storesAtOnce);
  // With one tenant there is nobody who waits for the next round.
  const isShared = new Set(stores.map(({ tenantId }) => tenantId)).size > 1;
  const until = isShared ? performance.now() + roundMs : Number.POSITIVE_INFINITY;
  const left = new Map<string, number>();
  const checked = await Promise.allSettled(
    inAnyOrder(stores).map((store) =>
      slots.run(store.tenantId, async () => {
        signal.throwIfAborted();
        if (performance.now() < until) return checkOne(options, store, until, signal);
        left.set(store.tenantId, (left.get(store.tenantId) ?? 0) + 1);
        return 0;
      }),
    ),
  );
  for (const [tenant, stores] of left)
    options.database.logger.warn(
      { tenant, stores },
      'the gateways of a tenant were too slow to compare all of its stores; the next checks do',
    );
  let found = 0;
  for (const result of checked) {
    if (result.status === 'rejected') throw result.reason;
    found += result.value;
  }
  return found;
}

/** A round that has no time for all stores of a tenant leaves other ones each time. */
function inAnyOrder<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

async function checkOne(
  options: AskOptions,
  store: StoreGateway,
  until: number,
  signal: AbortSignal,
): Promise<number> {
  try {
    return await checkStore(options, store, until, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    options.database.logger.warn(
      { store: store.code, tenant: store.tenantId, error: messageOf(error) },
      'the labels of a store could not be compared with its gateway; the next check tries again',
    );
    return 0;
  }
}

async function checkStore(
  options: AskOptions,
  store: StoreGateway,
  until: number,
  signal: AbortSignal,
): Promise<number> {
  const { gateways, observer } = options;
  const tenant = new TenantDatabase(options.database, store.tenantId);
  let found = 0;
  for (let after = ''; ; ) {
    const { macs, askedAt } = await macsOf(tenant, store.storeId, after);
    if (macs.length === 0) return found;
    after = macs.at(-1) ?? '';
    const reports = await gateways.of(store).report(macs, signal);
    await saveSightings(tenant, store, reports);
    const byMac = new Map(reports.map((report) => [report.mac, report]));
    for (let first = 0; first < macs.length; first += batchSize) {
      const some = macs.slice(first, first + batchSize);
      const pages = await pagesOf(tenant, store.storeId, { macs: some, askedAt });
      const drifted = pages.filter((page) => !page.isLeftAlone && hasDrifted(page, byMac.get(page.mac)));
      if (drifted.length > 0) await pushAgain(tenant, drifted);
      for (const _ of drifted) observer.drifted();
      found += drifted.length;
    }
    if (macs.length < asked || performance.now() >= until) return found;
  }
}

/** `askedAt`: the time by the database's clock, which also dates accepted images. Relies on labels_of_store. */
async function macsOf(
  on: Queryable,
  storeId: string,
  after: string,
): Promise<{ readonly macs: readonly string[]; readonly askedAt: string }> {
  const { rows } = await on.query<{ mac: string; askedAt: string }>(
    `select l.mac, clock_timestamp()::text as "askedAt" from labels.labels l
      where l.store_id = $1 and l.mac > $2 and exists (select 1 from labels.pages g where g.label_id = l.id)
      order by l.mac limit ${asked}`,
    [storeId, after],
  );
  return { macs: rows.map(({ mac }) => mac), askedAt: rows.at(-1)?.askedAt ?? '' };
}

/**
 * Without those whose image was accepted since the gateway was asked: its report is about the image before, also where the
 * new one is known to be shown by now.
 */
async function pagesOf(
  on: Queryable,
  storeId: string,
  { macs, askedAt }: { readonly macs: readonly string[]; readonly askedAt: string },
): Promise<LabelPage[]> {
  const { rows } = await on.query<LabelPage>(
    `select g.label_id as "labelId", l.mac, g.page, g.state, g.wanted_job as "wantedJob",
            g.accepted_job as "acceptedJob", g.accepted_hash as "acceptedHash",
            tallyman.job_exists(g.wanted_job) as "isPending",
            coalesce(g.drift_after > now(), false) as "isLeftAlone"
       from labels.labels l join labels.pages g on g.label_id = l.id
      where l.store_id = $1 and l.mac = any ($2) and (g.accepted_at is null or g.accepted_at < $3::timestamptz)`,
    [storeId, macs, askedAt],
  );
  return rows;
}

async function pushAgain(tenant: TenantDatabase, pages: readonly LabelPage[]): Promise<void> {
  const { tenantId } = tenant;
  const ids = [...new Set(pages.map(({ labelId }) => labelId))];
  const drifted = new Set(pages.map(({ labelId, page }) => `${labelId} ${page}`));
  const within = async (tx: Queryable): Promise<void> => {
    await resyncLabels({ tx, tenantId, drawsOutside: true }, ids, ({ labelId, page }) =>
      drifted.has(`${labelId} ${page}`),
    );
    await tx.query(
      `update labels.pages g
          set drifts = least(g.drifts + 1, 1000), drift_after = now() + labels.drift_pause(g.drifts + 1)
         from unnest($1::bigint[], $2::smallint[]) as u (label_id, page)
        where g.label_id = u.label_id and g.page = u.page`,
      [pages.map(({ labelId }) => labelId), pages.map(({ page }) => page)],
    );
  };
  await withWorkOutside(() => tenant.transaction(within));
}

/** Stores battery and last contact if they are new. Skips labels that are being changed. */
async function saveSightings(
  on: Queryable,
  { storeId }: StoreGateway,
  reports: readonly LabelReport[],
): Promise<void> {
  const told = reports.filter(({ battery, seenAt }) => battery !== undefined || seenAt !== undefined);
  if (told.length === 0) return;
  await on.query(
    `with told as (
       select * from json_to_recordset($2) as u (mac text, battery text, "seenAt" timestamptz)
     ), held as (
       select l.id, u.battery, u."seenAt" from labels.labels l join told u on u.mac = l.mac
        where l.store_id = $1
          and (l.battery is distinct from coalesce(u.battery, l.battery) or l.seen_at is distinct from coalesce(u."seenAt", l.seen_at))
        order by l.mac for no key update of l skip locked)
     update labels.labels l set battery = coalesce(h.battery, l.battery), seen_at = coalesce(h."seenAt", l.seen_at)
       from held h where l.id = h.id`,
    [storeId, JSON.stringify(told.map(({ mac, battery, seenAt }) => ({ mac, battery, seenAt })))],
  );
}
