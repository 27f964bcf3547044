export type { Checkpoint } from './checkpoints/checkpoints.ts';
export { Database, type DatabaseOptions, type Queryable } from './database/database.ts';
export { examine, type Finding } from './database/doctor.ts';
export { type EmbeddedOptions, type EmbeddedPostgres, startEmbedded } from './database/embedded/index.ts';
export { type MigrationReport, migrate } from './database/migrate.ts';
export { TenantDatabase, TenantScope } from './database/tenant.ts';
export type { DeadLetter, DeadLetterFilter, RedriveOptions } from './deadletters/dead-letters.ts';
export { GiveUpError, LeaseLostError, PermanentError, RetryLater, TallymanError } from './errors.ts';
export type { Problem } from './jobs/check.ts';
export type { JobContext } from './jobs/context.ts';
export type { Enqueued } from './jobs/enqueue.ts';
export type { JobEvent, WorkerEvents } from './jobs/events.ts';
export type { Job, JobError, JobFilter, JobStatus } from './jobs/jobs.ts';
export {
  type AnyKind,
  type Backoff,
  defineKind,
  type Handler,
  type Kind,
  type KindDefinition,
  type KindScope,
  type LanePolicy,
  type Priority,
} from './jobs/kind.ts';
export type { EnqueueOptions } from './jobs/new-job.ts';
export type { Queue, QueueLimits } from './jobs/queues.ts';
export { Worker } from './jobs/worker.ts';
export type { WorkerOptions } from './jobs/worker-options.ts';
export type { Lane, LaneFilter, LaneState } from './lanes/lanes.ts';
export type { Exclusive, Section } from './locks/exclusive.ts';
export type { LaneGrant, LaneLock } from './locks/lane-lock.ts';
export { type RedisLaneLockOptions, redisLaneLock } from './locks/redis.ts';
export type { Appended } from './log/answers.ts';
export { firstChain, type LogEntry, type NewEntry, nextChain } from './log/entry.ts';
export type { Expectation, FoundKey, Log, ReadOptions } from './log/log.ts';
export type { Head, StreamInfo, StreamName, StreamRef } from './log/stream.ts';
export { consoleLogger, type Logger, silentLogger } from './logger.ts';
export type { Page, PageRequest } from './paging.ts';
export type { NewSchedule, Schedule } from './schedules/schedules.ts';
export { Tallyman, type TallymanOptions } from './tallyman.ts';
export { type NatsWakeupOptions, natsWakeup } from './wakeups/nats.ts';
export { type RabbitmqWakeupOptions, rabbitmqWakeup } from './wakeups/rabbitmq.ts';
export type { Hint, Wakeup, WakeupStatus } from './wakeups/wakeup.ts';
