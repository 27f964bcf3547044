import { TallymanError } from '../errors.ts';
import { requireText, requireWhole } from '../validate.ts';
import { type Kind, type Priority, requirePriority } from './kind.ts';
import { type AcceptedPayload, type CheckedPayload, checkPayload } from './payload.ts';

export interface EnqueueOptions {
  /** Default: the kind's. */
  readonly queue?: string;
  readonly priority?: Priority;
  /** Jobs of one lane run strictly one after another. Default: the kind's lane key, or none. */
  readonly lane?: string;
  /** Not before this time. */
  readonly scheduledAt?: Date;
  /** Not before this many milliseconds from now, by the database's clock. */
  readonly delayMs?: number;
  /** Enqueueing the same key again returns the first job and adds none. Unique for each tenant and kind. */
  readonly dedupeKey?: string;
  /** Default `default`. */
  readonly tenantId?: string;
  readonly maxAttempts?: number;
  /** Default: the job's own id, or inside a handler that of the running job. */
  readonly correlationId?: string;
  /** See the kind's `lane.latestOnly`. */
  readonly latestOnly?: boolean;
}

/** A job as it goes to SQL; short names, since they are repeated in every row of a batch. */
export interface NewJob {
  readonly queue: string;
  readonly priority: Priority;
  /** Neither lane nor dedupe key. */
  readonly plain: boolean;
  readonly row: {
    s: number;
    readonly k: string;
    /** Spliced in as it is: already JSON text. */
    readonly p: string;
    readonly m: number;
    readonly t: string;
    readonly d?: number;
    readonly at?: string;
    readonly c?: string;
    readonly x?: string;
    readonly xk?: string | null;
    readonly l?: string;
    readonly b?: string;
    readonly o?: boolean;
    readonly w?: string;
  };
}

export interface NewJobRules {
  readonly maxPayloadBytes: number;
  readonly defaultMaxAttempts: number;
}

/**
 * Finds every mistake in the caller's input before anything is written. Returns a promise only if the kind's schema does:
 * an unnecessary await costs more than the rest.
 */
export function prepare<Output, Input>(
  kind: Kind<Output, Input>,
  payload: Input,
  options: EnqueueOptions,
  trace: string | undefined,
  rules: NewJobRules,
): NewJob | Promise<NewJob> {
  const checked = checkPayload(kind, payload);
  if (!(checked instanceof Promise)) return written(kind, accepted(kind, checked), options, trace, rules);
  return checked.then((result) => written(kind, accepted(kind, result), options, trace, rules));
}

function accepted<Output>(
  kind: Kind<Output, unknown>,
  checked: CheckedPayload<Output>,
): AcceptedPayload<Output> {
  if (checked.ok) return checked;
  throw new TallymanError(
    'VALIDATION_ERROR',
    `payload of kind "${kind.name}" is refused at ${checked.path || 'its root'}: ${checked.problem}`,
    { details: { kind: kind.name, path: checked.path } },
  );
}

function written<Output>(
  kind: Kind<Output, unknown>,
  { text, value }: AcceptedPayload<Output>,
  options: EnqueueOptions,
  trace: string | undefined,
  rules: NewJobRules,
): NewJob {
  const unkeepable = text.includes('\\u') && notText.exec(text)?.[1];
  if (unkeepable)
    throw new TallymanError(
      'VALIDATION_ERROR',
      `payload of kind "${kind.name}" contains ${unkeepable}, which is no character that PostgreSQL can keep`,
    );
  const limit = rules.maxPayloadBytes;
  if (text.length * 3 > limit && Buffer.byteLength(text) > limit)
    throw new TallymanError(
      'PAYLOAD_TOO_LARGE',
      `payload of kind "${kind.name}" has ${Buffer.byteLength(text)} bytes; the limit is ${limit}. Store it elsewhere and pass a reference, or raise jobs.maxPayloadBytes.`,
    );
  const queue = options.queue ?? kind.queue;
  const priority = options.priority ?? kind.priority;
  const lane = options.lane ?? kind.laneKey?.(value);
  if (options.queue !== undefined) requireText(queue, 'queue', 128);
  if (options.priority !== undefined) requirePriority(priority);
  if (options.maxAttempts !== undefined) requireWhole(options.maxAttempts, 'maxAttempts', 1, 1000);
  if (options.tenantId !== undefined) requireText(options.tenantId, 'tenantId', 128);
  if (options.correlationId !== undefined) requireText(options.correlationId, 'correlationId', 256);
  if (lane !== undefined) requireText(lane, 'lane', 256);
  if (options.dedupeKey !== undefined) requireText(options.dedupeKey, 'dedupeKey', 512);
  checkTimes(options);
  return {
    queue,
    priority,
    plain: lane === undefined && options.dedupeKey === undefined,
    row: {
      s: 1,
      k: kind.name,
      p: text,
      m: options.maxAttempts ?? kind.maxAttempts ?? rules.defaultMaxAttempts,
      t: options.tenantId ?? 'default',
      ...(options.delayMs !== undefined && { d: options.delayMs }),
      ...(options.scheduledAt && { at: options.scheduledAt.toISOString() }),
      ...(options.correlationId !== undefined && { c: options.correlationId }),
      ...(options.dedupeKey !== undefined && { x: options.dedupeKey, xk: kind.dedupeKeep }),
      ...(lane !== undefined && { l: lane, b: kind.lanePolicy, o: options.latestOnly ?? kind.latestOnly }),
      ...(trace !== undefined && { w: trace }),
    },
  };
}

function checkTimes({ delayMs, scheduledAt }: EnqueueOptions): void {
  if (delayMs !== undefined && scheduledAt !== undefined)
    throw new TallymanError('BAD_OPTION', 'give delayMs or scheduledAt, not both');
  if (delayMs !== undefined && (!Number.isFinite(delayMs) || delayMs < 0))
    throw new TallymanError('BAD_OPTION', `delayMs must not be negative, got ${delayMs}`);
  if (scheduledAt !== undefined && Number.isNaN(scheduledAt.getTime()))
    throw new TallymanError('BAD_OPTION', 'scheduledAt is not a date');
}

/** A NUL, or half of a surrogate pair (whole ones are not escaped); not an escaped backslash in front of such letters. */
const notText = /(?<!\\)(?:\\\\)*(\\u(?:0000|d[89a-f][0-9a-f]{2}))/;

/** Jobs that are to run at once, free and without a key, and that differ in nothing but their payload. */
export function areAlike(jobs: readonly NewJob[]): boolean {
  const [first] = jobs;
  if (!first) return false;
  const { k, m, t, c, w } = first.row;
  return jobs.every(
    ({ plain, queue, priority, row }) =>
      plain &&
      row.d === undefined &&
      row.at === undefined &&
      queue === first.queue &&
      priority === first.priority &&
      row.k === k &&
      row.m === m &&
      row.t === t &&
      row.c === c &&
      row.w === w,
  );
}

/** The columns that alike jobs share, sent once, and their payloads: arguments of the SQL functions for them. */
export function alikeArguments(jobs: readonly NewJob[]) {
  const { queue, priority, row } = jobs[0] as NewJob;
  return {
    queue,
    priority,
    kind: row.k,
    maxAttempts: row.m,
    tenant: row.t,
    correlation: row.c ?? null,
    trace: row.w ?? null,
    payloads: `[${jobs.map((job) => job.row.p).join(',')}]`,
  };
}

/** Jobs name their (queue, priority) by index, so that SQL looks each pair up once. */
export function numberStreams(jobs: NewJob[]): { queues: string[]; priorities: number[] } {
  const queues: string[] = [];
  const priorities: number[] = [];
  let last: NewJob | undefined;
  for (const job of jobs) {
    if (last && last.queue === job.queue && last.priority === job.priority) {
      job.row.s = last.row.s;
    } else {
      let i = queues.findIndex((queue, at) => queue === job.queue && priorities[at] === job.priority);
      if (i < 0) {
        i = queues.push(job.queue) - 1;
        priorities.push(job.priority);
      }
      job.row.s = i + 1;
    }
    last = job;
  }
  return { queues, priorities };
}

/** The payload is JSON text already; it is put in its place as it is instead of being escaped and parsed again. */
export function toJson(jobs: NewJob[]): string {
  let text = '[';
  for (const { row } of jobs) {
    const { p, ...rest } = row;
    text += `${text.length > 1 ? ',' : ''}${JSON.stringify(rest).slice(0, -1)},"p":${p}}`;
  }
  return `${text}]`;
}
