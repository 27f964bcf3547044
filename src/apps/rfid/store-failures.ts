import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import type { FailedRead } from './tag-read.ts';

/** Records failed reads. Any field may be wrong; each is stored as far as the database can hold it. */
export async function recordFailures(tx: Queryable, failures: readonly FailedRead[]): Promise<void> {
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
