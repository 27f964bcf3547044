import { TallymanError } from '../../engine/errors.ts';
import { internalKind, unknownKind } from '../../engine/jobs/internal-kinds.ts';
import { type AnyKind, defineKind, type Priority } from '../../engine/jobs/kind.ts';
import { type NewJob, prepare } from '../../engine/jobs/new-job.ts';
import type { RegisteredKind, RegisteredKinds } from '../../engine/jobs/registered-kinds.ts';
import { check, type StandardSchema } from '../../engine/jobs/standard-schema.ts';
import { given } from '../../given.ts';
import type { JobRequest } from '../../host/route.ts';
import type { RecentTenants } from '../access/recent-tenants.ts';

export interface Preparation {
  readonly tenantId: string;
  /** Of jobs that name none. */
  readonly correlationId: string;
  readonly maxPayloadBytes: number;
  /** Kinds whose definitions this process has. */
  readonly known: ReadonlyMap<string, AnyKind>;
  readonly registered: RegisteredKinds;
  readonly recent: RecentTenants;
}

export interface PreparedJobs {
  readonly jobs: readonly NewJob[];
  /** What the jobs took their defaults from, by name. */
  readonly kinds: ReadonlyMap<string, RegisteredKind>;
}

/** Then other requests come in between. */
const jobsInOneGo = 100;

/** Checks everything about the jobs that can be checked before they are written, and fills in what their kinds say. */
export async function prepareJobs(
  requests: readonly JobRequest[],
  preparation: Preparation,
): Promise<PreparedJobs> {
  const jobs: NewJob[] = [];
  const kinds = new Map<string, RegisteredKind>();
  for (const [i, request] of requests.entries()) {
    if (i > 0 && i % jobsInOneGo === 0) await preparation.recent.letOthersPass(preparation.tenantId);
    const kind = kinds.get(request.kind) ?? (await kindOf(request.kind, preparation));
    kinds.set(request.kind, kind);
    const own = preparation.known.get(request.kind);
    const path = requests.length > 1 ? `body.jobs.${i}.payload` : 'body.payload';
    // What came in is stored; the lane is named by what the schema makes of it.
    const value = own?.schema ? await accepted(own.schema, request.payload, path) : request.payload;
    const prepared = prepare(
      asKind(kind),
      request.payload,
      given({
        queue: request.queue,
        priority: request.priority as Priority | undefined,
        lane: request.lane ?? own?.laneKey?.(value),
        delayMs: request.delay_ms,
        scheduledAt: request.scheduled_at,
        dedupeKey: request.dedupe_key,
        tenantId: preparation.tenantId,
        maxAttempts: request.max_attempts,
        correlationId: request.correlation_id ?? preparation.correlationId,
        latestOnly: request.latest_only,
      }),
      undefined,
      { maxPayloadBytes: preparation.maxPayloadBytes, defaultMaxAttempts: kind.maxAttempts },
    );
    jobs.push(prepared instanceof Promise ? await prepared : prepared);
  }
  return { jobs, kinds };
}

/**
 * The registered kind. If this process knows the kind, its definition decides whether it is public. A kind that was refused
 * a moment ago may be allowed now: nothing is refused by what was read before.
 */
async function kindOf(name: string, { known, registered }: Preparation): Promise<RegisteredKind> {
  const own = known.get(name);
  if (own && !own.isPublic) throw internalKind(name);
  const allows = (kind: RegisteredKind | undefined): boolean => kind !== undefined && (own ?? kind).isPublic;
  const remembered = registered.get(name);
  const kind = allows(remembered) ? remembered : await registered.read(name);
  if (!kind) throw unknownKind(name);
  if (!allows(kind)) throw internalKind(name);
  return kind;
}

async function accepted(schema: StandardSchema, payload: unknown, at: string): Promise<unknown> {
  const checked = await check(schema, payload);
  if (checked.ok) return checked.value;
  const path = [at, checked.path].filter(Boolean).join('.');
  throw new TallymanError('VALIDATION_ERROR', `${path}: ${checked.problem}`, {
    details: { fields: [{ path, message: checked.problem }] },
  });
}

const asKinds = new WeakMap<RegisteredKind, AnyKind>();

/** A definition that enqueues as the registered kind says; it has no handler to run. */
function asKind(registered: RegisteredKind): AnyKind {
  const before = asKinds.get(registered);
  if (before) return before;
  const { name, queue, priority, maxAttempts, lanePolicy, latestOnly, dedupeKeep } = registered;
  const kind = {
    ...defineKind({
      name,
      queue,
      priority,
      retry: { maxAttempts },
      lane: { policy: lanePolicy, latestOnly },
      handler: () => {
        throw new TallymanError('BAD_STATE', `kind "${name}" is only enqueued here`);
      },
    }),
    dedupeKeep,
  };
  asKinds.set(registered, kind);
  return kind;
}
