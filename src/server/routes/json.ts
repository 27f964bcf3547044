/*
 * How things look in JSON: in the API, and in `--json` of the command line. One naming for both, so that a script written
 * for one reads the other.
 */
import type { DeadLetter } from '../../engine/deadletters/dead-letters.ts';
import type { Job, JobError } from '../../engine/jobs/jobs.ts';
import type { Queue } from '../../engine/jobs/queues.ts';
import type { Lane } from '../../engine/lanes/lanes.ts';
import type { Page } from '../../engine/paging.ts';
import type { Schedule } from '../../engine/schedules/schedules.ts';
import { type EventType, payloadSchema } from '../../events/catalogue.ts';
import { homeTenant } from '../../host/roles.ts';
import type { Caller } from '../../host/route.ts';
import type { ApiKey } from '../access/keys.ts';
import type { Tenant } from '../access/tenants.ts';

export const pageJson = <T, J>({ items, nextCursor }: Page<T>, json: (item: T) => J) => ({
  items: items.map(json),
  next_cursor: nextCursor,
});

/**
 * As the caller may see it: the code that failed and the machine that it ran on are the operator's. `json` is how the operator
 * sees it.
 */
export const seenBy =
  <T, J extends Partial<Insides>>({ tenantId }: Pick<Caller, 'tenantId'>, json: (item: T) => J) =>
  (item: T): J => {
    const seen = json(item);
    if (tenantId === homeTenant) return seen;
    return {
      ...seen,
      ...(seen.last_error && { last_error: { ...seen.last_error, stack: null, worker: null } }),
      ...(seen.worker && { worker: null }),
    };
  };

interface Insides {
  readonly last_error: JobError | null;
  readonly worker: string | null;
}

export const jobJson = (job: Job) => ({
  id: job.id,
  tenant_id: job.tenantId,
  status: job.status,
  queue: job.queue,
  kind: job.kind,
  priority: job.priority,
  lane: job.lane,
  seq: job.seq,
  payload: job.payload,
  attempts: job.attempts,
  max_attempts: job.maxAttempts,
  correlation_id: job.correlationId,
  dedupe_key: job.dedupeKey,
  created_at: job.createdAt,
  scheduled_at: job.scheduledAt,
  finished_at: job.finishedAt,
  last_error: job.lastError,
});

export const laneJson = (lane: Lane) => ({
  id: lane.id,
  tenant_id: lane.tenantId,
  queue: lane.queue,
  key: lane.key,
  policy: lane.policy,
  state: lane.state,
  pending: lane.pending,
  worker: lane.worker,
  due_at: lane.dueAt,
  blocked_at: lane.blockedAt,
  blocked_by: lane.blockedBy,
});

export const deadLetterJson = (letter: DeadLetter) => ({
  id: letter.id,
  tenant_id: letter.tenantId,
  source: letter.source,
  queue: letter.queue,
  kind: letter.kind,
  entity_type: letter.entityType,
  entity_id: letter.entityId,
  attempts: letter.attempts,
  max_attempts: letter.maxAttempts,
  redrives: letter.redrives,
  lane: letter.lane,
  payload: letter.payload,
  correlation_id: letter.correlationId,
  first_failed_at: letter.firstFailedAt,
  last_failed_at: letter.lastFailedAt,
  last_error: letter.lastError,
});

export const queueJson = (queue: Queue) => ({
  name: queue.name,
  paused_at: queue.pausedAt,
  max_running: queue.maxRunning,
  rate_per_second: queue.ratePerSecond,
  rate_burst: queue.rateBurst,
  ready: queue.ready,
  running: queue.running,
  waiting: queue.waiting,
  oldest_ready_at: queue.oldestReadyAt,
});

export const scheduleJson = (schedule: Schedule) => ({
  name: schedule.name,
  tenant_id: schedule.tenantId,
  cron: schedule.cron,
  timezone: schedule.timezone,
  kind: schedule.kind,
  payload: schedule.payload,
  queue: schedule.options.queue ?? null,
  priority: schedule.options.priority ?? null,
  lane: schedule.options.lane ?? null,
  max_attempts: schedule.options.maxAttempts ?? null,
  enabled: schedule.enabled,
  next_run_at: schedule.nextRunAt,
  last_run_at: schedule.lastRunAt ?? null,
  last_job_id: schedule.lastJobId ?? null,
});

export const keyJson = (key: ApiKey) => ({
  id: key.id,
  tenant_id: key.tenantId,
  name: key.name,
  role: key.role,
  access: key.access,
  created_at: key.createdAt,
  expires_at: key.expiresAt,
  revoked_at: key.revokedAt,
  last_used_at: key.lastUsedAt,
});

export const tenantJson = (tenant: Tenant) => ({
  id: tenant.id,
  name: tenant.name,
  created_at: tenant.createdAt,
});

export const eventTypeJson = (type: EventType) => ({
  event_type: type.type,
  summary: type.summary,
  aggregate_type: type.aggregateType,
  payload_schema: payloadSchema(type),
});
