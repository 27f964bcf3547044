import type { Statement } from '../../engine/database/pipeline.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Enqueued } from '../../engine/jobs/enqueue.ts';
import { type NewJob, numberStreams, toJson } from '../../engine/jobs/new-job.ts';
import type { NewEvent } from '../../events/emit.ts';
import type { AuditEvent } from '../access/audit.ts';
import type { PreparedJobs } from './prepare.ts';

/** A request that does nothing but enqueue, or emit an event, ready to be written. */
export interface EnqueueRequest extends PreparedJobs {
  /** An event instead of jobs. */
  readonly emitted?: EmittedEvent | undefined;
  readonly tenantId: string;
  /** The audit line that it gets when it is done. */
  readonly event: AuditEvent;
  /** Its Idempotency-Key. */
  readonly key: string | undefined;
  /** Of the request, to tell a repeated one from another one with the same key; with `key` only. */
  readonly digest: Buffer | undefined;
}

/** Its payload is JSON. */
export type EmittedEvent = NewEvent & { readonly payload: string };

/** What `tallyman_server.enqueue_requests` and `emit_requests` answer for a request. */
export type Outcome =
  | { readonly type: 'done'; readonly enqueued: readonly Enqueued[] }
  | Taken
  | { readonly type: 'stale' }
  | { readonly type: 'skipped' }
  | { readonly type: 'busy' };

/** The key was used before, by a request with this digest, which got this answer. */
export interface Taken {
  readonly type: 'taken';
  readonly digest: Buffer;
  readonly status: number;
  /** A text: the answer, sealed, as routes that do not share commits keep it. */
  readonly kept: readonly Enqueued[] | string;
}

export interface OutcomeRow {
  readonly outcome: Outcome['type'];
  readonly ids: readonly (string | null)[];
  readonly existing: readonly boolean[];
  readonly digest: Buffer;
  readonly status: number;
  readonly body: string;
}

/** One statement for requests of one tenant. `waitMs`: how long it waits for locks. */
export function statementOf(
  requests: readonly EnqueueRequest[],
  waitMs: number,
  prepare: boolean,
): Statement {
  const jobs: NewJob[] = [];
  const kinds = new Map<string, string>();
  const entries = requests.map((request) => {
    const first = jobs.length + 1;
    jobs.push(...request.jobs);
    for (const [name, { row }] of request.kinds) kinds.set(name, row);
    const { actor, action, status, correlationId, address } = request.event;
    const { key, digest } = request;
    return {
      ...{ first, last: jobs.length, actor, action, status, correlationId, address },
      ...(key !== undefined && { key, digest: digest?.toString('hex') }),
    };
  });
  const { queues, priorities } = numberStreams(jobs);
  return {
    ...(prepare && { name: 'tms_enqueue_requests' }),
    text: `select outcome, ids, existing, digest, status, body
             from tallyman_server.enqueue_requests($1, $2, $3, $4, $5, $6, $7, $8)`,
    values: [
      requests[0]?.tenantId,
      JSON.stringify(entries),
      `[${[...kinds.values()].join(',')}]`,
      queues,
      priorities,
      toJson(jobs),
      jobs.every(({ plain }) => plain),
      waitMs,
    ],
  };
}

/** The same for requests that emit an event. */
export function emitStatementOf(
  requests: readonly EnqueueRequest[],
  waitMs: number,
  prepare: boolean,
): Statement {
  const entries = requests.map(({ emitted, event, key, digest }) => {
    const { type, aggregateType, aggregateId, payload, id, occurredAt } = emitted ?? noEvent();
    const { actor, action, status, correlationId, address } = event;
    return {
      ...{ type, aggregateType, aggregateId, payload, id, occurredAt },
      ...{ actor, action, status, correlationId, address },
      ...(key !== undefined && { key, digest: digest?.toString('hex') }),
    };
  });
  return {
    ...(prepare && { name: 'tms_emit_requests' }),
    text: `select outcome, ids, existing, digest, status, body from tallyman_server.emit_requests($1, $2, $3)`,
    values: [requests[0]?.tenantId, JSON.stringify(entries), waitMs],
  };
}

const noEvent = (): never => {
  throw new TallymanError('BAD_STATE', 'a request without an event was given for one');
};

export function outcomesOf(rows: readonly OutcomeRow[]): Outcome[] {
  return rows.map(({ outcome: type, ids, existing, digest, status, body }): Outcome => {
    if (type === 'done') return { type, enqueued: enqueuedOf(ids as readonly string[], existing) };
    return type === 'taken' ? { type, digest, status, kept: keptAnswer(body) ?? body } : { type };
  });
}

/** Reads the answer that is kept under a key; undefined: it is not one of these but sealed. */
function keptAnswer(body: string): readonly Enqueued[] | undefined {
  if (!body.startsWith('{')) return undefined;
  const { ids, existing } = JSON.parse(body) as { ids: readonly string[]; existing: readonly boolean[] };
  return enqueuedOf(ids, existing);
}

const enqueuedOf = (ids: readonly string[], existing: readonly boolean[]): Enqueued[] =>
  ids.map((id, i) => ({ id, existing: existing[i] === true }));
