/**
 * Failed reads become jobs of kind `rfid.process-read`. The engine counts their attempts and turns what still fails into
 * dead letters that can be redriven. They need no lane: a late read is put in its place by its own time, so their order does
 * not matter.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { defineKind, type Kind } from '../../engine/jobs/kind.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import { hashToBase64 } from './content-hash.ts';
import type { TagReadProcessor } from './process.ts';
import { isForeignTag, tagAndDevice } from './store-failures.ts';
import type { FailedRead, TagRead } from './tag-read.ts';

const processReadKind = 'rfid.process-read';

/** Attempts of a read whose device may be registered later. */
export const mostAttempts = 5;

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
export function processRead(processor: TagReadProcessor, maxAttempts = mostAttempts): Kind<RetriedRead> {
  return defineKind<RetriedRead>({
    name: processReadKind,
    schema,
    queue: 'rfid',
    retry: { maxAttempts },
    scope: 'tenant',
    handler: async (read, context) => {
      // Since then the configuration may have been told to ignore it.
      if (processor.ignores(read.epc)) return;
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
 * adds no second job while its job or its dead letter exists; nor does another read of a refused tag at the same device. A read
 * that no retry can fix becomes a dead letter after one attempt.
 */
export function retryAsJobs(tallyman: Tallyman, kind: Kind<RetriedRead>) {
  return async (tx: Queryable, failures: readonly FailedRead[]): Promise<void> => {
    const jobs = failures.map((failure) => ({
      payload: sendable(failure.read),
      tenantId: text(failure.read.tenantId).slice(0, 100) || 'default',
      dedupeKey: dedupeKeyOf(failure),
      maxAttempts: failure.retryable ? (kind.maxAttempts ?? mostAttempts) : 1,
    }));
    // A tag that lies before a reader is in every message: send its job once.
    const distinct = new Map(jobs.map((job) => [`${job.tenantId} ${job.dedupeKey}`, job] as const).reverse());
    await tallyman.enqueueMany(kind, [...distinct.values()].reverse(), { tx });
  };
}

const dedupeKeyOf = (failure: FailedRead): string =>
  isForeignTag(failure)
    ? `tag ${hash('sha256', tagAndDevice(failure), 'base64')}`
    : hashToBase64(failure.contentHash);

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
