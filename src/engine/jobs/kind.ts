import { TallymanError } from '../errors.ts';
import { exponentialMs } from '../resilience/backoff.ts';
import { requireText, requireWhole } from '../validate.ts';
import type { JobContext } from './context.ts';
import type { StandardSchema } from './standard-schema.ts';

/** 0 critical, 1 high, 2 normal, 3 low. */
export type Priority = 0 | 1 | 2 | 3;

/** What a lane does when a job of it becomes a dead letter or fails for good: wait for a person, or go on. */
export type LanePolicy = 'block' | 'skip';

/** How long to wait after failed attempt `n` (1, 2, …), in milliseconds, before jitter. */
export type Backoff = (attempt: number) => number;

export type OnTimeout = 'abandon' | 'wait';

/**
 * Whose rows a handler works on. `tenant`: those of its job's tenant alone; `context.tenant` and `context.commit` run
 * under row-level security. `all`: nothing is restricted.
 */
export type KindScope = 'tenant' | 'all';

/** `Input` is enqueued and stored; `Output` is what the schema makes of it, for the handler. Without a schema both are one. */
export interface KindDefinition<Output, Input = Output> {
  /** Names the handler; written into every job. */
  readonly name: string;
  /**
   * Checks the payload at enqueue and again before the handler, which gets the output of the schema. Any Standard Schema
   * library, such as Zod; its checks may be asynchronous.
   */
  readonly schema?: StandardSchema<Output, Input>;
  /** Default `default`. */
  readonly queue?: string;
  /** Default 2. */
  readonly priority?: Priority;
  readonly retry?: {
    /** Runs before a job becomes a dead letter. Default 5. */
    readonly maxAttempts?: number;
    /** Default `min(1024, 2^n)` seconds. */
    readonly backoff?: Backoff;
  };
  /** After this the handler's signal fires and the attempt counts as failed. Default: none. */
  readonly timeoutMs?: number;
  /**
   * What happens to a handler that runs on after its timeout. `abandon`: the attempt fails at once, and its slot, and in a
   * lane the next job, go on beside it. `wait`: the attempt fails when the handler returns; until then it keeps its
   * slot and its lane. Default `abandon`.
   */
  readonly onTimeout?: OnTimeout;
  readonly lane?: {
    /** The lane of a payload, from the output of the schema; an enqueue may name another. Default: none. */
    readonly key?: (payload: Output) => string;
    /** Default `skip`. */
    readonly policy?: LanePolicy;
    /** Older jobs of this kind waiting in the lane end as SUPERSEDED without being run. Default false. */
    readonly latestOnly?: boolean;
  };
  /** How long after its job has ended a dedupe key is kept. Default: as long as history. */
  readonly dedupe?: { readonly keep: 'forever' | { readonly ms: number } };
  /**
   * Anybody who may enqueue, through the HTTP API or the command line, may enqueue this kind. Otherwise only code and
   * SQL can: the kind is internal. Default false.
   */
  readonly public?: boolean;
  /** Default `all`. */
  readonly scope?: KindScope;
  /** Why this kind works on rows of all tenants; only with scope `all`. Kinds of the product's apps have to say. */
  readonly acrossTenants?: string;
  readonly handler: Handler<Output>;
}

export type Handler<Payload> = (payload: Payload, context: JobContext) => unknown;

/** A definition with its defaults filled in. Make one with `defineKind`. */
export interface Kind<Output = unknown, Input = Output> {
  readonly name: string;
  readonly schema: StandardSchema<Output, Input> | undefined;
  readonly queue: string;
  readonly priority: Priority;
  readonly maxAttempts: number | undefined;
  readonly backoff: Backoff;
  readonly timeoutMs: number | undefined;
  readonly onTimeout: OnTimeout;
  readonly laneKey: ((payload: Output) => string) | undefined;
  readonly lanePolicy: LanePolicy;
  readonly latestOnly: boolean;
  /** Interval text for Postgres; null is "as long as history". */
  readonly dedupeKeep: string | null;
  readonly isPublic: boolean;
  readonly scope: KindScope;
  readonly acrossTenants: string | undefined;
  readonly handler: Handler<Output>;
}

/** Kinds of any payload, as a worker takes them. The payload's type is the business of each handler alone. */
// biome-ignore lint/suspicious/noExplicitAny: a list of kinds with different payloads has no other common type
export type AnyKind = Kind<any, any>;

/** 2 s after the first failure, up to 17 minutes. */
export const defaultBackoff: Backoff = (attempt) => exponentialMs(attempt, { minMs: 1000, maxMs: 1_024_000 });

/**
 * One kind of job: its payload, its place, how it is retried, and its handler, in one definition.
 *
 * @example
 * const greet = defineKind({
 *   name: 'greet',
 *   schema: z.object({ name: z.string() }),
 *   handler: async ({ name }) => console.log(`Hello ${name}`),
 * });
 */
export function defineKind<Output = unknown, Input = Output>(
  definition: KindDefinition<Output, Input>,
): Kind<Output, Input> {
  const { name, queue = 'default', priority = 2, retry = {}, timeoutMs, lane = {} } = definition;
  requireText(name, `kind name`, 128);
  requireText(queue, `queue of kind "${name}"`, 128);
  requirePriority(priority);
  if (retry.maxAttempts !== undefined)
    requireWhole(retry.maxAttempts, `maxAttempts of kind "${name}"`, 1, 1000);
  if (timeoutMs !== undefined) requireWhole(timeoutMs, `timeoutMs of kind "${name}"`, 1, 2 ** 31 - 1);
  const { onTimeout = 'abandon' } = definition;
  if (onTimeout !== 'abandon' && onTimeout !== 'wait')
    throw new TallymanError(
      'BAD_OPTION',
      `onTimeout of kind "${name}" must be "abandon" or "wait", got "${String(onTimeout)}"`,
    );
  const { scope = 'all', acrossTenants } = definition;
  if (scope !== 'tenant' && scope !== 'all')
    throw new TallymanError(
      'BAD_OPTION',
      `scope of kind "${name}" must be "tenant" or "all", got "${String(scope)}"`,
    );
  if (scope === 'tenant' && acrossTenants !== undefined)
    throw new TallymanError(
      'BAD_OPTION',
      `kind "${name}" has scope "tenant" and cannot work across tenants: leave acrossTenants out`,
    );
  if (typeof definition.handler !== 'function')
    throw new TallymanError('BAD_OPTION', `kind "${name}" has no handler function`);
  return {
    name,
    schema: definition.schema,
    queue,
    priority,
    maxAttempts: retry.maxAttempts,
    backoff: retry.backoff ?? defaultBackoff,
    timeoutMs,
    onTimeout,
    laneKey: lane.key,
    lanePolicy: lane.policy ?? 'skip',
    latestOnly: lane.latestOnly ?? false,
    dedupeKeep: dedupeInterval(definition.dedupe),
    isPublic: definition.public === true,
    scope,
    acrossTenants,
    handler: definition.handler,
  };
}

function dedupeInterval(dedupe: KindDefinition<unknown>['dedupe']): string | null {
  if (!dedupe) return null;
  return dedupe.keep === 'forever' ? '10000 years' : `${dedupe.keep.ms} milliseconds`;
}

/** Of jobs whose kind does not say. */
export const defaultMaxAttempts = 5;

export function requirePriority(value: unknown): asserts value is Priority {
  if (value !== 0 && value !== 1 && value !== 2 && value !== 3)
    throw new TallymanError(
      'BAD_OPTION',
      `priority must be 0 (critical), 1, 2 or 3 (low), got ${String(value)}`,
    );
}
