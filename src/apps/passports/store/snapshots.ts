import { type DeadLetter, DeadLetters } from '../../../engine/deadletters/dead-letters.ts';
import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

export const snapshotStates = ['BUILDING', 'READY', 'SEALED', 'FAILED'] as const;
export type SnapshotState = (typeof snapshotStates)[number];

/** Why something could not be made, with the places that are at fault. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly problems: readonly FailedAt[];
}

/** A place in a document, by the SHA-256 of its bytes. */
export interface FailedAt {
  readonly document: Hash;
  readonly row: number;
  readonly column: string;
}

/** Its facts: `factsOfSnapshot`; its documents: `documentsOfSnapshot`. */
export interface StoredSnapshot {
  readonly id: string;
  readonly productId: string;
  /** FAILED: its build has ended with an error. It can be built again. */
  readonly state: SnapshotState;
  readonly hash: Hash | null;
  readonly factCount: number | null;
  readonly error: Failure | null;
  readonly createdAt: Date;
  readonly sealedAt: Date | null;
}

const columns = `s.id, s.product_id as "productId", case when s.error is null then s.state else 'FAILED' end as state, s.hash,
  s.fact_count as "factCount", s.error, s.created_at as "createdAt", s.sealed_at as "sealedAt"`;

export async function requireSnapshot(on: TenantQueries, id: string): Promise<StoredSnapshot> {
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s where s.tenant_id = $1 and s.id = $2`,
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('snapshot', id);
  const [snapshot = rows[0]] = await withDeadBuilds(on, rows);
  return snapshot;
}

/** The sealed snapshot of a product that was built last. */
export async function latestSnapshot(
  on: TenantQueries,
  productId: string,
): Promise<StoredSnapshot | undefined> {
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s
      where s.tenant_id = $1 and s.product_id = $2 and s.state = 'SEALED' order by s.sealed_at desc, s.id desc limit 1`,
    [on.tenantId, productId],
  );
  return rows[0];
}

/** The snapshot of a product that was requested last, however far it is. Relies on snapshots_of_product. */
export async function newestSnapshot(
  on: TenantQueries,
  productId: string,
): Promise<StoredSnapshot | undefined> {
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s
      where s.tenant_id = $1 and s.product_id = $2 order by s.created_at desc, s.id desc limit 1`,
    [on.tenantId, productId],
  );
  return (await withDeadBuilds(on, rows))[0];
}

export async function listSnapshots(
  on: TenantQueries,
  filter: { readonly productId?: string } = {},
  page: PageRequest = {},
): Promise<Page<StoredSnapshot>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s
      where s.tenant_id = $1 and ($2::text is null or s.product_id = $2) and ($3 = '' or s.id > nullif($3, '')::uuid)
      order by s.id limit $4`,
    [on.tenantId, filter.productId ?? null, cursor, fetch],
  );
  return textPageOf(await withDeadBuilds(on, rows), size, ({ id }) => id);
}

/**
 * A job that has used up its attempts leaves no error in the row: its dead letter has it, until it is redriven or
 * discarded. Asked for only where a snapshot seems to be under way.
 */
async function withDeadBuilds(
  on: TenantQueries,
  snapshots: readonly StoredSnapshot[],
): Promise<readonly StoredSnapshot[]> {
  if (!snapshots.some(({ state }) => state === 'BUILDING')) return snapshots;
  const letters = await deadBuilds(on);
  return snapshots.map((snapshot): StoredSnapshot => {
    const letter = letters.find((each) => isOf(each, snapshot.id));
    return snapshot.state === 'BUILDING' && letter
      ? { ...snapshot, state: 'FAILED', error: failureIn(letter) }
      : snapshot;
  });
}

const isOf = ({ payload }: DeadLetter, snapshotId: string): boolean =>
  (payload as { readonly snapshotId?: string } | null)?.snapshotId === snapshotId;

const failureIn = ({ id, lastError }: DeadLetter): Failure => ({
  code: lastError?.code ?? 'DEAD_LETTER',
  message: `${lastError?.message ?? 'its job has used up its attempts'} (dead letter ${id})`,
  problems: [],
});

/** All dead letters of BUILD_SNAPSHOT. Relies on dead_letters_by_kind. */
async function deadBuilds(on: TenantQueries): Promise<readonly DeadLetter[]> {
  const letters: DeadLetter[] = [];
  let cursor: string | undefined;
  do {
    const found = await new DeadLetters(on).list(
      { kind: 'passports.build-snapshot', tenantId: on.tenantId },
      { limit: 200, ...(cursor !== undefined && { cursor }) },
    );
    letters.push(...found.items);
    cursor = found.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return letters;
}

/** The dead letters of one snapshot's builds. */
export const deadBuildsOf = async (on: TenantQueries, snapshotId: string): Promise<readonly string[]> =>
  (await deadBuilds(on)).filter((letter) => isOf(letter, snapshotId)).map(({ id }) => id);
