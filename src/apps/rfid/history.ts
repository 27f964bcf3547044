/** Finds what late reads have to be judged by: their neighbours among the stored reads. */
import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { formatInstant, type Micros } from '../../engine/instant.ts';
import { longestMs } from './config.ts';
import {
  type BasketReads,
  type Findings,
  isLate,
  type KnownBasket,
  needsNoHistory,
  type Sorted,
} from './decide.ts';
import { microsOf } from './micros.ts';
import {
  firstNeeded,
  judgedFrom,
  reachesFarEnough,
  type StoredMovement,
  type StoredRead,
  type StoredTrack,
  wholeInstants,
} from './retrace.ts';
import type { ExaminedRead } from './tag-read.ts';
import { bucketStart, type MovementRules } from './track.ts';

export interface HistoryOptions {
  readonly rules: MovementRules;
  /** Late reads from before this are stale. Null: as far as the stored reads reach. */
  readonly horizon: Micros | null;
  /** Judge every read among the stored ones, and look this far: after a collision with a movement of another window. */
  readonly thorough: boolean;
}

/** No window is longer. */
const longestWindow: Micros = longestMs * 1000;

/** Reads of a basket that are loaded at first; most late reads need few. */
const firstChunk = 100;

interface Wanted {
  readonly basket: KnownBasket;
  readonly fresh: readonly ExaminedRead[];
}

/** The caller must have locked the baskets. */
export async function findNeighbours(
  tx: Queryable,
  reads: readonly ExaminedRead[],
  sorted: Sorted,
  options: HistoryOptions,
): Promise<Findings> {
  for (;;) {
    const settled = await settle(tx, reads, sorted, options);
    const wanted = sorted.baskets
      .filter((own) => mayNeedHistory(own, reads, options))
      .map(
        ({ basket, fresh }): Wanted => ({
          basket,
          fresh: fresh.filter((place) => !settled.has(place)).map((place) => reads[place] as ExaminedRead),
        }),
      )
      .filter(
        ({ basket, fresh }) =>
          fresh.length > 0 &&
          (options.thorough ||
            isLate(basket, fresh[0] as ExaminedRead) ||
            !needsNoHistory(basket, fresh, options.rules)),
      );
    if (wanted.length === 0) return { sorted, settled, tracks: new Map() };
    const tracks = await loadTracks(tx, wanted, options);
    if (await areComplete(tx, wanted, options)) return { sorted, settled, tracks };
  }
}

/** False for nearly every basket, at little cost: the first of its reads, which are in event order, is newer than all that is known. */
const mayNeedHistory = (
  { basket, fresh }: BasketReads,
  reads: readonly ExaminedRead[],
  { thorough, rules }: HistoryOptions,
): boolean =>
  thorough ||
  rules.minimumStay > 0 ||
  basket.placeId !== null ||
  isLate(basket, reads[fresh[0] as number] as ExaminedRead);

/** The late reads that need no judgement: they lie in the middle of a stay, or come from beyond the horizon. */
async function settle(
  tx: Queryable,
  reads: readonly ExaminedRead[],
  { baskets }: Sorted,
  options: HistoryOptions,
): Promise<Map<number, 'same location' | 'short stay' | 'stale'>> {
  const settled = new Map<number, 'same location' | 'short stay' | 'stale'>();
  const late: { basket: KnownBasket; place: number; read: ExaminedRead }[] = [];
  for (const { basket, fresh } of baskets)
    for (const place of fresh) {
      const read = reads[place] as ExaminedRead;
      if (!isLate(basket, read)) break;
      late.push({ basket, place, read });
    }
  if (late.length === 0) return settled;
  const { rows } = await tx.query<{
    n: string;
    before_location: string | null;
    before_skip: string | null;
    after_location: string | null;
    forgotten_to: string | null;
  }>('select * from rfid.reads_beside($1, $2, $3, $4)', [
    textArray(late.map(({ read }) => read.tenantId)),
    plainArray(late.map(({ basket }) => basket.id)),
    plainArray(late.map(({ read }) => formatInstant(read.at))),
    plainArray(late.map(({ read }) => read.contentHash)),
  ]);
  /** Baskets with a read that changes something. */
  const open = new Set<string>();
  for (const row of rows) {
    const { basket, place, read } = late[Number(row.n) - 1] as (typeof late)[number];
    const { locationId } = read;
    if (isBeyond(read, row.forgotten_to, options)) settled.set(place, 'stale');
    else if (options.thorough || row.before_location !== locationId || row.after_location !== locationId)
      open.add(basket.id);
    else settled.set(place, row.before_skip === 'short stay' ? 'short stay' : 'same location');
  }
  for (const { basket, place } of late)
    if (open.has(basket.id) && settled.get(place) !== 'stale') settled.delete(place);
  return settled;
}

/** The neighbours that decide about a read reach back this far. */
const reach = ({ window, minimumStay }: MovementRules): Micros => window + 2 * minimumStay;

function isBeyond({ at }: ExaminedRead, forgottenTo: string | null, options: HistoryOptions): boolean {
  if (options.horizon !== null && at < options.horizon) return true;
  return forgottenTo !== null && at - reach(options.rules) <= microsOf(forgottenTo);
}

/** Old reads are deleted meanwhile: the horizon is read again after the neighbours, so that none can be missing unnoticed. */
async function areComplete(tx: Queryable, wanted: readonly Wanted[], options: HistoryOptions) {
  const late = wanted.filter(({ basket, fresh }) => isLate(basket, fresh[0] as ExaminedRead));
  if (late.length === 0) return true;
  const tenants = [...new Set(late.map(({ fresh }) => fresh[0]?.tenantId ?? ''))];
  const { rows } = await tx.query<{ tenant_id: string; forgotten_to: string }>(
    'select * from rfid.horizons($1)',
    [tenants],
  );
  const horizons = new Map(rows.map((row) => [row.tenant_id, row.forgotten_to]));
  return !late.some(({ fresh: [first] }) =>
    isBeyond(first as ExaminedRead, horizons.get(first?.tenantId ?? '') ?? null, options),
  );
}

interface Loading extends Wanted {
  readonly before: StoredMovement[];
  readonly reads: StoredRead[];
  /** The last row that was loaded. */
  last: { readonly at: Micros; readonly contentHash: string } | null;
  complete: boolean;
}

async function loadTracks(
  tx: Queryable,
  wanted: readonly Wanted[],
  { rules, thorough }: HistoryOptions,
): Promise<Map<string, StoredTrack>> {
  const tracks = wanted.map(
    (one): Loading => ({ ...one, before: [], reads: [], last: null, complete: false }),
  );
  await loadMovements(tx, tracks, rules);
  let open: readonly Loading[] = tracks;
  for (let limit = firstChunk; open.length > 0; limit *= 4) {
    await loadReads(tx, open, rules, limit);
    open = open.filter(
      (track) =>
        !reachesFarEnough(track.basket, track.fresh, track, rules, thorough ? longestWindow : undefined),
    );
  }
  return new Map(tracks.map((track) => [track.basket.id, track]));
}

interface MovementRow {
  readonly movement_id: string;
  readonly moved_from: string | null;
  readonly moved_to: string;
  readonly moved_at: string;
  readonly window_start: string;
  readonly repeats: number;
  readonly last_at: string | null;
  readonly last_before?: string | null;
}

const movementOf = (row: MovementRow): StoredMovement => ({
  id: row.movement_id,
  from: row.moved_from,
  to: row.moved_to,
  at: microsOf(row.moved_at),
  windowStart: microsOf(row.window_start),
  repeats: row.repeats,
  lastAt: row.last_at === null ? null : microsOf(row.last_at),
  lastBefore: row.last_before == null ? null : microsOf(row.last_before),
});

async function loadMovements(tx: Queryable, tracks: readonly Loading[], rules: MovementRules): Promise<void> {
  const from = tracks.map(({ basket, fresh }) => judgedFrom(basket, (fresh[0] as ExaminedRead).at, rules));
  const { rows } = await tx.query<MovementRow & { n: string }>(
    'select * from rfid.movements_before($1, $2, $3, $4)',
    [
      plainArray(tracks.map(({ basket }) => basket.id)),
      plainArray(from.map(formatInstant)),
      plainArray(from.map((at) => formatInstant(at - rules.window))),
      plainArray(from.map((at) => formatInstant(bucketStart(at - rules.window, rules.window)))),
    ],
  );
  for (const row of rows) (tracks[Number(row.n) - 1] as Loading).before.push(movementOf(row));
}

interface ReadRow extends Partial<MovementRow> {
  readonly n: string;
  readonly id: string;
  readonly at: string;
  readonly content_hash: string;
  readonly location_id: string | null;
  readonly device_id: string;
  readonly at_return_door: boolean | null;
  readonly skip_reason: string | null;
}

/** The next reads of each, up to the limit. */
async function loadReads(
  tx: Queryable,
  tracks: readonly Loading[],
  rules: MovementRules,
  limit: number,
): Promise<void> {
  const { rows } = await tx.query<ReadRow>('select * from rfid.reads_from($1, $2, $3, $4)', [
    plainArray(tracks.map(({ basket }) => basket.id)),
    plainArray(
      tracks.map(({ basket, fresh, last }) =>
        formatInstant(last?.at ?? firstNeeded(basket, (fresh[0] as ExaminedRead).at, rules)),
      ),
    ),
    plainArray(tracks.map(({ last }) => last?.contentHash ?? null)),
    limit,
  ]);
  const found = tracks.map((): ReadRow[] => []);
  for (const row of rows) found[Number(row.n) - 1]?.push(row);
  for (const [n, track] of tracks.entries()) {
    const own = (found[n] ?? []).map(readOf);
    track.complete = own.length < limit;
    const loaded = track.complete ? own : wholeInstants(own);
    track.last = loaded.at(-1) ?? track.last;
    // A reader that is gone says nothing about where the basket was.
    for (const read of loaded) if (read.locationId !== null) track.reads.push(read as StoredRead);
  }
}

const readOf = (row: ReadRow): Omit<StoredRead, 'locationId'> & { readonly locationId: string | null } => ({
  id: row.id,
  at: microsOf(row.at),
  contentHash: row.content_hash,
  locationId: row.location_id,
  deviceId: row.device_id,
  isReturn: row.at_return_door === true,
  skip: row.skip_reason,
  movement: row.movement_id == null ? null : movementOf(row as MovementRow),
});
