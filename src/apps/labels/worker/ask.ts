import type { Database, Queryable } from '../../../engine/database/database.ts';
import { messageOf } from '../../../engine/errors.ts';
import { resyncLabels } from '../labels.ts';
import { type Gateways, gatewayColumns, type StoreGateway } from './gateways.ts';
import { type AskedPage, askAgainMs, judge } from './judge.ts';
import type { LabelObserver } from './observer.ts';
import { tell } from './page-store.ts';
import { TenantSlots } from './tenant-slots.ts';

export interface AskOptions {
  readonly database: Database;
  readonly gateways: Gateways;
  readonly observer: LabelObserver;
}

interface DuePage extends AskedPage, StoreGateway {
  readonly labelId: string;
  readonly mac: string;
  readonly acceptedJob: string;
}

interface Verdict {
  readonly label_id: string;
  readonly page: number;
  readonly accepted_job: string;
  readonly state: string;
  readonly error: string | null;
  readonly wait_ms: number;
}

/** Pages taken at once, which is about the number of rows locked at once. */
export const batchSize = 1000;

/** Stores that one process asks about at once. */
const storesAtOnce = 32;
/** What was taken is due again after a minute, for any process: what has waited longer than this is left to the next round. */
const mostWaitingMs = 45_000;

/**
 * Asks gateways about accepted pages that are due, and stores the answers: shown, still on its way, or given up, which makes a
 * new task (LBL-7). Each store by itself: one whose gateway is slow holds up no other.
 */
export class Asking {
  readonly #options: AskOptions;
  readonly #slots = new TenantSlots(storesAtOnce);
  /** By store. Pages of these are not taken. */
  readonly #underWay = new Map<string, Promise<void>>();
  #trouble: { readonly error: unknown } | undefined;

  constructor(options: AskOptions) {
    this.#options = options;
  }

  /** Takes pages that are due, and begins to ask about them. Returns their number; throws what went wrong meanwhile. */
  async begin(signal: AbortSignal): Promise<number> {
    this.#throwTrouble();
    const due = await takeDue(this.#options.database, [...this.#underWay.keys()]);
    for (const [storeId, pages] of byStore(due))
      this.#underWay.set(storeId, this.#ask(storeId, pages, signal));
    return due.length;
  }

  /** Everything under way is over. */
  async ended(): Promise<void> {
    await Promise.all(this.#underWay.values());
    this.#throwTrouble();
  }

  async #ask(storeId: string, pages: readonly DuePage[], signal: AbortSignal): Promise<void> {
    const [{ tenantId }] = pages as [DuePage, ...DuePage[]];
    const latest = performance.now() + mostWaitingMs;
    try {
      await this.#slots.run(tenantId, async () => {
        if (!signal.aborted && performance.now() < latest) await askStore(this.#options, pages, signal);
      });
    } catch (error) {
      this.#trouble ??= { error };
    } finally {
      this.#underWay.delete(storeId);
    }
  }

  #throwTrouble(): void {
    const trouble = this.#trouble;
    this.#trouble = undefined;
    if (trouble) throw trouble.error;
  }
}

/** Asks about all pages that are due, and waits for the answers. Returns how many pages it asked about. */
export async function askGateways(options: AskOptions, signal: AbortSignal): Promise<number> {
  const asking = new Asking(options);
  let asked = 0;
  for (;;) {
    const taken = await asking.begin(signal);
    await asking.ended();
    asked += taken;
    if (taken < batchSize || signal.aborted) return asked;
  }
}

/**
 * Takes the pages that are due, for this process. For others they are due again in a minute: so no page is asked about
 * twice, and after a crash another process takes over. Relies on pages_to_ask.
 *
 * One process takes at a time. Otherwise one that looks while another commits would lock the very pages that the other
 * has just taken, and the other's verdicts would skip them as locked.
 */
function takeDue(database: Database, except: readonly string[]): Promise<DuePage[]> {
  return database.transaction(async (tx) => {
    await tx.query(`select pg_advisory_xact_lock(hashtext('labels.take_due'))`);
    return selectDue(tx, except);
  });
}

async function selectDue(tx: Queryable, except: readonly string[]): Promise<DuePage[]> {
  const others =
    except.length === 0
      ? ''
      : 'and not exists (select 1 from labels.labels l where l.id = g.label_id and l.store_id = any ($1))';
  const { rows } = await tx.query<DuePage>(
    `with due as (
       select g.label_id, g.page from labels.pages g where g.ask_at <= now() ${others}
        order by g.ask_at limit ${batchSize} for no key update of g skip locked
     ), taken as (
       update labels.pages g set ask_at = now() + interval '1 minute' from due d
        where g.label_id = d.label_id and g.page = d.page
       returning g.label_id, g.page, g.accepted_job, g.accepted_hash, g.asked)
     select t.label_id as "labelId", t.page, t.accepted_job as "acceptedJob", t.accepted_hash as "acceptedHash", t.asked,
            l.mac, ${gatewayColumns}
       from taken t join labels.labels l on l.id = t.label_id join labels.stores s on s.id = l.store_id`,
    except.length === 0 ? [] : [except],
  );
  return rows;
}

/** A gateway that cannot be reached is asked again later; the labels of other stores do not wait for it. */
async function askStore(
  { database, gateways, observer }: AskOptions,
  pages: readonly DuePage[],
  signal: AbortSignal,
): Promise<void> {
  const [store] = pages as [DuePage, ...DuePage[]];
  let verdicts: Verdict[];
  try {
    const macs = [...new Set(pages.map(({ mac }) => mac))];
    const reports = await gateways.of(store).report(macs, signal);
    const byMac = new Map(reports.map((report) => [report.mac, report]));
    verdicts = pages.map((page) => {
      const { state, error = null } = judge(page, byMac.get(page.mac));
      return { ...keyOf(page), state, error, wait_ms: askAgainMs(page.asked) };
    });
  } catch (error) {
    if (signal.aborted) throw error;
    database.logger.warn(
      { store: store.code, tenant: store.tenantId, error: messageOf(error) },
      'a label gateway could not be asked what its labels show; it is asked again',
    );
    verdicts = pages.map((page) => ({
      ...keyOf(page),
      state: 'processing',
      error: null,
      wait_ms: askAgainMs(page.asked),
    }));
  }
  const settled = await saveVerdicts(database, verdicts);
  for (const { state, lag } of settled) if (state === 'shown') observer.shown(lag);
  const again = settled.filter((page) => page.pushAgain).map(({ labelId }) => labelId);
  // In its own transaction: labels are locked before pages, and the page locks were held just now. After a crash in
  // between, pages have the state `timeout`, which the drift check looks for.
  if (again.length > 0)
    await database.transaction((tx) => {
      const timedOut = new Set(again);
      return resyncLabels({ tx, tenantId: store.tenantId }, [...timedOut]);
    });
}

/**
 * Updates only pages for which nothing was accepted since the gateway was asked. Locked pages are about to change: they
 * are skipped, not waited for.
 */
function saveVerdicts(database: Database, verdicts: readonly Verdict[]): Promise<SettledPage[]> {
  return database.transaction(async (tx) => {
    const settled = await updatePages(tx, verdicts);
    await tell(
      tx,
      settled.filter(({ isSettled }) => isSettled),
    );
    return settled;
  });
}

interface SettledPage {
  readonly labelId: string;
  readonly page: number;
  /** What the gateway's report means. */
  readonly state: string;
  /** True if no newer image is wanted and this state is final. */
  readonly isSettled: boolean;
  readonly lag: number;
  readonly pushAgain: boolean;
}

async function updatePages(tx: Queryable, verdicts: readonly Verdict[]): Promise<SettledPage[]> {
  const { rows } = await tx.query<SettledPage>(
    `with told as (
       select u.* from json_to_recordset($1)
         as u (label_id bigint, page smallint, accepted_job bigint, state text, error text, wait_ms double precision)
     ), held as (
       select g.label_id, g.page from labels.pages g join told u on u.label_id = g.label_id and u.page = g.page
        where g.accepted_job = u.accepted_job and g.ask_at is not null
        for no key update of g skip locked)
     update labels.pages g
        set state = case when g.wanted_job > g.accepted_job then g.state else u.state end,
            error = u.error,
            shown_hash = case when u.state = 'shown' then g.accepted_hash else g.shown_hash end,
            shown_at = case when u.state = 'shown' then clock_timestamp() else g.shown_at end,
            ask_at = case when u.state = 'processing' then clock_timestamp() + u.wait_ms * interval '1 millisecond' end,
            asked = least(g.asked + 1, 1000),
            drifts = case u.state when 'shown' then 0 when 'timeout' then least(g.drifts + 1, 1000) else g.drifts end,
            drift_after = case when u.state = 'timeout' then now() + labels.drift_pause(g.drifts)
                               when u.state = 'shown' then null else g.drift_after end
       from held h join told u on u.label_id = h.label_id and u.page = h.page
      where g.label_id = h.label_id and g.page = h.page
     returning g.label_id as "labelId", g.page, u.state, g.state = u.state and u.state <> 'processing' as "isSettled",
               extract(epoch from clock_timestamp() - g.wanted_at)::float8 as lag,
               u.state = 'timeout' and g.drifts = 1 as "pushAgain"`,
    [JSON.stringify(verdicts)],
  );
  return rows;
}

const keyOf = ({ labelId, page, acceptedJob }: DuePage) => ({
  label_id: labelId,
  page,
  accepted_job: acceptedJob,
});

function byStore(pages: readonly DuePage[]): Map<string, DuePage[]> {
  const stores = new Map<string, DuePage[]>();
  for (const page of pages) {
    const known = stores.get(page.storeId);
    if (known) known.push(page);
    else stores.set(page.storeId, [page]);
  }
  return stores;
}
