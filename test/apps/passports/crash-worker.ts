/**
 * A worker of the chain in a process of its own. It kills itself after a statement of a handler, or of the redrive with which it
 * begins, if the statement's place is its to die at and is not among those where an earlier process died. A place is the
 * handler with the texts of all statements up to there: all paths through all handlers are walked, whatever they are. Without
 * a place to die at it works until no job is left and a signed head covers every audit event, and says which places it
 * came through.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { passportsComponent } from '../../../src/apps/passports/component.ts';
import { auditHeadsKind } from '../../../src/apps/passports/jobs/audit-heads.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { TenantDatabase } from '../../../src/engine/database/tenant.ts';
import type { AnyKind } from '../../../src/engine/jobs/kind.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { keysAfterRotation, testMeans } from './means.ts';

export interface CrashTask {
  readonly url: string;
  /** It dies at statements whose number leaves this rest; null: it never does. */
  readonly slice: number | null;
  readonly slices: number;
  readonly died: readonly string[];
}

interface Run {
  readonly kind: string;
  statements: number;
  path: string;
}

const task = JSON.parse(process.argv[2] ?? '') as CrashTask;
const died = new Set(task.died);
const came = new Set<string>();
const running = new AsyncLocalStorage<Run>();

/** Asked once and kept for the process: whichever handler comes first asks, so it is no part of a handler's path. */
const isKeptByProcess = (text: string): boolean => text.includes('tallyman.streams_of(');

/** Without what differs from run to run: ids and tokens that are in the text itself. */
const shape = (text: string): string => text.replaceAll(/'[^']*'/g, '?').replaceAll(/\d+/g, '#');

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 12);

function answered(run: Run, text: string): void {
  run.statements += 1;
  run.path = digest(`${run.path}\n${shape(text)}`);
  const place = `${run.kind} ${digest(shape(text))} ${run.statements} ${run.path}`;
  came.add(place);
  if (task.slice === null || run.statements % task.slices !== task.slice || died.has(place)) return;
  writeSync(1, `died ${place}\n`);
  process.kill(process.pid, 'SIGKILL');
  for (;;);
}

const { query } = pg.Client.prototype as unknown as { query: (...args: unknown[]) => unknown };
(pg.Client.prototype as unknown as { query: unknown }).query = function (
  this: pg.Client,
  ...args: unknown[]
) {
  const run = running.getStore();
  const [first] = args;
  const text = typeof first === 'string' ? first : String((first as { text?: string }).text ?? 'prepared');
  if (!run || isKeptByProcess(text)) return query.apply(this, args);
  const last = args.at(-1);
  if (typeof last === 'function')
    return query.apply(this, [
      ...args.slice(0, -1),
      (...results: unknown[]) => {
        answered(run, text);
        last(...results);
      },
    ]);
  return (query.apply(this, args) as Promise<unknown>).then((result) => {
    answered(run, text);
    return result;
  });
};

const kinds = (): readonly AnyKind[] => {
  const means = testMeans({ keys: keysAfterRotation });
  return [...passportKinds(means), auditHeadsKind(tallyman.database, means)];
};

/** Each job with caches of its own: what a handler asks depends on the database alone, and not on the jobs before it. */
const watched = (kind: AnyKind, at: number): AnyKind => ({
  ...kind,
  backoff: () => 0,
  handler: (payload, context) =>
    running.run({ kind: kind.name, statements: 0, path: '' }, () => kinds()[at]?.handler(payload, context)),
});

const tallyman = await Tallyman.open({
  databaseUrl: task.url,
  components: [eventsComponent, passportsComponent],
  logger: silentLogger,
});
// Opens the connections that handlers use, so that their set-up is in no handler's path.
const tenant = new TenantDatabase(tallyman.database, 'default');
await tenant.query('select 1');
await tenant.transaction((scope) => scope.query('select 1'));
const isThere = async (rows: string): Promise<boolean> =>
  (await tallyman.database.query(`select 1 from ${rows} limit 1`)).rows.length > 0;

// What an operator does; killed in the middle of it, the next process does the rest.
await running.run({ kind: 'redrive', statements: 0, path: '' }, () => tallyman.deadLetters.redriveAll({}));
const all = kinds();
const worker = tallyman.worker({ kinds: all.map(watched), concurrency: 1, pollIntervalMs: 50 });
await worker.start();
for (;;) {
  while (await isThere('tallyman.jobs')) await sleep(20);
  if (!(await isThere('passports.audit_events where head is null'))) break;
  const heads = all.find(({ name }) => name === 'passports.audit-heads') as AnyKind;
  await tallyman.enqueue(heads, {});
}
await worker.stop();
await tallyman.close();
writeSync(1, [...came].map((place) => `came ${place}\n`).join(''));
