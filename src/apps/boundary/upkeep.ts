/** Work that comes round: trimming, the collection of objects, the index of subjects. */
import { messageOf } from '../../engine/errors.ts';
import { exclusively } from '../../engine/locks/exclusive.ts';
import type { Logger } from '../../engine/logger.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import { Outage } from '../../engine/resilience/outage.ts';
import { streamName } from './domain/delivery.ts';
import { holdGraceMs, type NodeParts } from './node.ts';
import { collectOrphans } from './objects/collect.ts';
import { trimConfirmed } from './retention.ts';
import type { StreamId } from './store/store.ts';
import { forgetSubjects, indexSubjects } from './subjects.ts';

/** Of the section that collects objects, the same in every process of the node. */
const collectLock = 0x42425550001n;

export interface TaskOptions {
  /** For the log: `trimming facts`. */
  readonly name: string;
  readonly everyMs: number;
  readonly work: (signal: AbortSignal) => Promise<void>;
  readonly logger: Logger;
}

/** Does its work again and again, until it is stopped. Trouble is logged, and the next round tries again. */
export class Task {
  readonly #options: TaskOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: TaskOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { name, everyMs, work, logger } = this.#options;
    const outage = new Outage(
      logger,
      { task: name },
      { down: 'a task of the boundary failed; it is tried again', up: 'a task of the boundary works again' },
    );
    while (!signal.aborted) {
      try {
        await work(signal);
        outage.up();
      } catch (error) {
        if (!signal.aborted) outage.down(messageOf(error));
      }
      await pause(everyMs, signal);
    }
  }
}

/**
 * Trims facts that everyone has confirmed, and what the index knows of them; notes which streams have room again. Any process may, any
 * number of times. A stream that cannot be trimmed holds up no other: all of these are told at the end.
 */
export async function trimStreams(node: NodeParts): Promise<number> {
  const { store, settings, database } = node;
  const { rows } = await database.query<{ now: Date }>('select clock_timestamp() as now');
  const olderThan = new Date((rows[0]?.now ?? new Date()).getTime() - settings.keepMs);
  let trimmed = 0;
  const failures: string[] = [];
  const causes: unknown[] = [];
  for (const { tenantId, buffer, from, to } of await store.streams(settings.tenantId)) {
    const stream = { tenantId, buffer, from, to };
    try {
      trimmed += await trimStream(node, stream, olderThan);
    } catch (error) {
      failures.push(`${buffer} buffer of ${streamName(stream)}: ${messageOf(error)}`);
      causes.push(error);
    }
  }
  if (failures.length > 0) throw new AggregateError(causes, failures.join('; '));
  return trimmed;
}

async function trimStream(
  { store, database, admission }: NodeParts,
  stream: StreamId,
  olderThan: Date,
): Promise<number> {
  const trimmed = await trimConfirmed(store, stream, olderThan);
  await admission.review(stream);
  const state = await store.state(stream);
  if (state) await forgetSubjects(database, stream, state.first);
  return trimmed;
}

/** Removes objects that no fact names. One process at a time: it looks at every file. */
export async function collectObjects(
  { database, blobs, store, settings }: NodeParts,
  logger: Logger,
): Promise<void> {
  const { graceMs } = settings.objects;
  await exclusively(database, collectLock, async () => {
    const removed = await collectOrphans({
      database,
      blobs,
      store,
      uploadGraceMs: graceMs,
      graceMs,
      holdGraceMs,
    });
    if (Object.values(removed).some((count) => count > 0))
      logger.info({ ...removed }, 'objects that no fact names were removed');
  });
}

/** The rounds of a node. */
export function tasksOf(node: NodeParts, logger: Logger): readonly Task[] {
  const { trimMs, objects } = node.settings;
  const task = (name: string, everyMs: number, work: TaskOptions['work']): Task =>
    new Task({ name, everyMs, work, logger });
  return [
    task('trimming facts', trimMs, async () => {
      const trimmed = await trimStreams(node);
      if (trimmed > 0) logger.info({ facts: trimmed }, 'facts that everyone has confirmed were trimmed');
    }),
    task('collecting objects', objects.collectMs, () => collectObjects(node, logger)),
    task('indexing subjects', 1000, (signal) => indexSubjects(node, signal)),
  ];
}
