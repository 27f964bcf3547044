import { z } from 'zod';
import { defineKind, type Kind } from '../../engine/jobs/kind.ts';
import { type RedeliveryRange, redeliverPart } from './redelivery.ts';

/** Events that one transaction sends again; a longer range goes on as a job. */
export const mostAtOnce = 1_000;

export const redeliverDeclaration = { name: 'webhook.redeliver' } as const;

export interface RestOfRange {
  readonly endpointId: string;
  readonly from: string;
  readonly to: string;
  readonly onlyFailed: boolean;
  /** The last event that was sent again. */
  readonly after: string;
}

const payload = z.object({
  endpointId: z.string(),
  from: z.string(),
  to: z.string(),
  onlyFailed: z.boolean(),
  after: z.string(),
});

/**
 * Sends the rest of a range again, a part in each job. A part, the job for the next one and the end of its own job are one
 * commit: a process that is killed in between sends no event of the range twice and leaves none out.
 */
export const redeliverKind: Kind<RestOfRange> = defineKind<RestOfRange>({
  ...redeliverDeclaration,
  schema: payload,
  queue: 'webhooks',
  priority: 3,
  scope: 'tenant',
  handler: (rest, context) =>
    context.commit(async (tx) => {
      const { next } = await redeliverPart(tx, rangeOf(rest), { after: rest.after, limit: mostAtOnce });
      if (next !== undefined) await context.enqueue(redeliverKind, { ...rest, after: next }, { tx });
    }),
});

const rangeOf = ({ endpointId, from, to, onlyFailed }: RestOfRange): RedeliveryRange => ({
  endpointId,
  from: new Date(from),
  to: new Date(to),
  onlyFailed,
});
