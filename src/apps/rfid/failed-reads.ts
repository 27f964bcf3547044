/**
 * Failed reads become jobs of kind `rfid.process-read`. The engine counts their attempts and turns what still fails into
 * dead letters that can be redriven. They need no lane: a late read is compared with the basket's last one by its own
 * time, so their order does not matter.
 */
import { z } from 'zod';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { defineKind, type Kind } from '../../engine/jobs/kind.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import { hashToBase64 } from './content-hash.ts';
import type { TagReadProcessor } from './process.ts';
import type { FailedRead, TagRead } from './tag-read.ts';

export const processReadKind = 'rfid.process-read';

/** Retries of a read whose device may be registered later. */
const mostAttempts = 5;

const schema = z.object({
  zbTagReadId: z.string().optional(),
  epc: z.string(),
  epcUri: z.string().optional(),
  deviceId: z.string(),
  eventTimestamp: z.string(),
  processorType: z.enum(['MQTT', 'Replay']),
});

/** A read without its tenant; the job has the tenant. */
export type RetriedRead = Omit<TagRead, 'tenantId'>;

/** The kind that tries a read again. */
export function processRead(processor: TagReadProcessor): Kind<RetriedRead> {
  return defineKind<RetriedRead>({
    name: processReadKind,
    schema,
    queue: 'rfid',
    retry: { maxAttempts: mostAttempts },
    scope: 'tenant',
    handler: async (read, context) => {
      const batch = await processor.examine([{ ...read, tenantId: context.tenantId }]);
      const [failure] = batch.failures;
      // Do not record the failure again: the job's last error is enough.
      if (failure) throw new TallymanError(failure.code, failure.message);
      await context.commit((tx) => processor.processWithin(tx, batch, { thorough: true }));
    },
  });
}

/**
 * `onFailed` for a processor: enqueues a job for each read, in the transaction that records its failure. The same read
 * adds no second job while its job or its dead letter exists. A read that no retry can fix becomes a dead letter after
 * one attempt.
 */
export function retryAsJobs(tallyman: Tallyman, kind: Kind<RetriedRead>) {
  return async (tx: Queryable, failures: readonly FailedRead[]): Promise<void> => {
    await tallyman.enqueueMany(
      kind,
      failures.map(({ read, contentHash, retryable }) => ({
        payload: sendable(read),
        tenantId: text(read.tenantId).slice(0, 100) || 'default',
        dedupeKey: hashToBase64(contentHash),
        maxAttempts: retryable ? mostAttempts : 1,
      })),
      { tx },
    );
  };
}

const text = (value: unknown): string =>
  (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).replaceAll('\0', '�').slice(0, 1000);

/** Accepts any read, whatever is wrong with its fields, so that it becomes a visible dead letter. */
function sendable(read: TagRead): RetriedRead {
  const { zbTagReadId, epcUri } = read;
  return {
    ...(zbTagReadId !== undefined && { zbTagReadId: text(zbTagReadId) }),
    epc: text(read.epc),
    ...(epcUri !== undefined && { epcUri: text(epcUri) }),
    deviceId: text(read.deviceId),
    eventTimestamp: text(read.eventTimestamp),
    processorType: read.processorType === 'Replay' ? 'Replay' : 'MQTT',
  };
}
