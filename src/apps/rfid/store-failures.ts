import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { canonicalEpc } from './epc.ts';
import type { FailedRead } from './tag-read.ts';

/**
 * Records failed reads. Any field may be wrong; each is stored as far as the database can hold it. Of a refused tag only the
 * first read at each device has a row of its own, the others are counted. A replayed read has one, by which it is recognised, unless
 * the tag was counted when it came by MQTT.
 */
export async function recordFailures(tx: Queryable, failures: readonly FailedRead[]): Promise<void> {
  const foreign = failures.filter(isForeignTag);
  const own = new Set(failures.filter((failure) => !isForeignTag(failure)));
  for (const { group, isNew } of await countRefused(tx, foreign))
    for (const [i, failure] of group.entries())
      if ((isNew && i === 0) || isId(failure.read.zbTagReadId)) own.add(failure);
  if (own.size > 0) await insertFailures(tx, [...own]);
}

/** No retry makes it a tag that counts, and it will be read again and again. */
export const isForeignTag = ({ code }: FailedRead): boolean => code === 'BAD_EPC';

interface Counted {
  /** Reads of one tag at one device. */
  readonly group: readonly FailedRead[];
  readonly isNew: boolean;
}

/** The groups that were counted: not those that are replayed and were counted before. */
async function countRefused(tx: Queryable, failures: readonly FailedRead[]): Promise<Counted[]> {
  const groups = [...Map.groupBy(failures, tagAndDevice).values()].map((group) => {
    const live = group.filter(isLive);
    return live.length > 0 ? live : group;
  });
  if (groups.length === 0) return [];
  const heads = groups.map(([head]) => head as FailedRead);
  const { rows } = await tx.query<{ n: string; is_new: boolean }>(
    'select * from rfid.refuse_tags($1, $2, $3, $4, $5, $6)',
    [
      textArray(heads.map(({ read }) => keepable(read.tenantId) || 'default')),
      textArray(heads.map(({ read }) => keepable(read.deviceId).trim())),
      textArray(heads.map(({ read }) => canonicalEpc(keepable(read.epc)))),
      plainArray(groups.map((group) => group.length)),
      textArray(heads.map(({ message }) => keepable(message, 1000))),
      plainArray(heads.map(isLive)),
    ],
  );
  return rows.map(({ n, is_new: isNew }) => ({ group: groups[Number(n) - 1] as FailedRead[], isNew }));
}

const isLive = ({ read }: FailedRead): boolean => read.processorType !== 'Replay';

/** Names a tag at a device, tenant included. */
export const tagAndDevice = ({ read }: FailedRead): string =>
  [
    keepable(read.tenantId) || 'default',
    keepable(read.deviceId).trim(),
    canonicalEpc(keepable(read.epc)),
  ].join('\n');

async function insertFailures(tx: Queryable, failures: readonly FailedRead[]): Promise<void> {
  const reads = failures.map(({ read }) => read);
  await tx.query('select rfid.record_failures($1, $2, $3, $4, $5, $6, $7, $8)', [
    textArray(reads.map(({ tenantId }) => keepable(tenantId) || 'default')),
    plainArray(reads.map(({ zbTagReadId }) => (isId(zbTagReadId) ? zbTagReadId : null))),
    plainArray(failures.map(({ contentHash }) => contentHash)),
    plainArray(reads.map(({ processorType }) => (processorType === 'Replay' ? 'Replay' : 'MQTT'))),
    plainArray(failures.map(({ timestamp }) => timestamp)),
    textArray(reads.map(({ epc }) => keepable(epc))),
    textArray(reads.map(({ deviceId }) => keepable(deviceId))),
    textArray(failures.map(({ message }) => keepable(message, 1000))),
  ]);
}

const isId = (value: unknown): value is string => typeof value === 'string' && /^\d{1,18}$/.test(value);

const keepable = (value: unknown, longest = 256): string =>
  String(value).replaceAll('\0', '\ufffd').slice(0, longest).toWellFormed();
