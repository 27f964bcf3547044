/** Epochs that were started here, and the text that tells the other zone of one. All statements rely on epochs_pkey. */
import type { Database } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import { invalid } from '../domain/errors.ts';
import { keyOf, ofStream } from '../store/postgres/stream-key.ts';
import type { StreamId } from '../store/store.ts';

export interface StartedEpoch {
  readonly epoch: string;
  readonly formerEpoch: string;
  /** How far the other zone had come. */
  readonly after: number;
  /** What lies behind it in the former epoch is appended again. */
  readonly confirmed: number;
  /** The last offset that does not belong to the new epoch. */
  readonly boundary: number;
  /** The first fact of the new epoch follows from it. */
  readonly chain: string;
}

export async function noteStarted(
  database: Database,
  stream: StreamId,
  { epoch, formerEpoch, after, confirmed, boundary, chain }: StartedEpoch,
): Promise<void> {
  await new TenantDatabase(database, stream.tenantId).query(
    `insert into boundary.epochs
       (tenant_id, buffer, from_zone, to_zone, epoch, former_epoch, after_offset, confirmed_offset, boundary_offset, chain)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict do nothing`,
    [...keyOf(stream), epoch, formerEpoch, after, confirmed, boundary, chain],
  );
}

export async function startedEpoch(
  database: Database,
  stream: StreamId,
  epoch: string,
): Promise<StartedEpoch | undefined> {
  const { rows } = await new TenantDatabase(database, stream.tenantId).query<StartedEpoch>(
    `select epoch, former_epoch as "formerEpoch", after_offset::float8 as after, confirmed_offset::float8 as confirmed,
            boundary_offset::float8 as boundary, chain
       from boundary.epochs
      where ${ofStream} and epoch = $5`,
    [...keyOf(stream), epoch],
  );
  return rows[0];
}

/** Says in which epoch an offset was issued that lies before the epochs that were started here. */
export async function epochsBefore(
  database: Database,
  stream: StreamId,
): Promise<(offset: number) => string | undefined> {
  const { rows } = await new TenantDatabase(database, stream.tenantId).query<
    Pick<StartedEpoch, 'formerEpoch' | 'boundary'>
  >(
    `select former_epoch as "formerEpoch", boundary_offset::float8 as boundary from boundary.epochs
      where ${ofStream} order by boundary_offset`,
    keyOf(stream),
  );
  return (offset) => rows.find(({ boundary }) => offset <= boundary)?.formerEpoch;
}

/** What the other zone must know to accept an epoch. */
export type EpochToken = Pick<StartedEpoch, 'epoch' | 'after' | 'chain'>;

/** One word, to be copied from one terminal to another. */
export const tokenText = ({ epoch, after, chain }: EpochToken): string => `${epoch}:${after}:${chain}`;

const pattern = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d{1,15}):([0-9a-f]{64})$/;

export function tokenIn(text: string): EpochToken {
  const [, epoch, after, chain] = pattern.exec(text.trim()) ?? [];
  if (epoch === undefined || after === undefined || chain === undefined)
    throw invalid(
      'token',
      'is not what `tallyman zones new-epoch` printed: expected <epoch>:<offset>:<chain hash>',
    );
  return { epoch, after: Number(after), chain };
}
