import { join } from 'node:path';
import { measureInChild } from '../../../lib/child.ts';
import { median, percentile, readable, table } from '../../../lib/figures.ts';
import { type PostgresServer, usingDatabase } from '../../../lib/postgres.ts';
import { repeat } from '../../../lib/repeat.ts';
import type { Row, SuiteOptions } from '../../../lib/suite.ts';
import { startTallyman } from '../systems/tallyman.ts';
import { KIND } from '../workloads.ts';
import type { Answered, AttackTask } from './attacker.ts';
import { ATTACKS, type Attack } from './attacks.ts';
import type { Called, CallerTask } from './caller.ts';
import { NEIGHBOUR } from './summary.ts';

const PER_SECOND = 50;
const QUIET_SECONDS = 3;
const ATTACKED_SECONDS = 4;
/** Until the attack has filled its connections. */
const LEAD_MS = 1_000;
const TIMEOUT = 60_000;

interface Phase {
  readonly p50: number;
  readonly p99: number;
}

interface Measured {
  /** How many times as long the p99 is. */
  readonly value: number;
  readonly quiet: Phase;
  readonly attacked: Phase;
  readonly answered: Answered;
}

const child = <Task extends object, Result>(name: string, task: Task): Promise<Result> =>
  measureInChild<Task, Result>(join(import.meta.dirname, name), task, TIMEOUT);

const phaseOf = ({ latencies }: Called): Phase => ({
  p50: percentile(latencies, 0.5),
  p99: percentile(latencies, 0.99),
});

/** For each attack: a quiet phase and the attack, one right after the other, on a server of their own. */
export async function measureNeighbour(server: PostgresServer, options: SuiteOptions) {
  const rows: Row[] = [];
  const failures: string[] = [];
  const systems = ['tallyman', ...(options.baseline === undefined ? [] : ['tallyman-before'])].filter(
    (name) => options.systems?.includes(name) ?? true,
  );
  for (const attack of ATTACKS) {
    const measured = await repeat<Measured>(
      {
        workload: `${NEIGHBOUR.name}-${attack.name}`,
        systems,
        unit: '×',
        once: (system) => measureOnce(attack, server, system === 'tallyman' ? undefined : options.baseline),
        aside: ({ quiet, attacked, answered }) =>
          `p50 ${readable(quiet.p50)} → ${readable(attacked.p50)} ms, p99 ${readable(quiet.p99)} → ${readable(attacked.p99)} ms; ` +
          `the other: ${JSON.stringify(answered)}`,
        extra: (_, runs) => ({
          quietP50: median(runs.map(({ quiet }) => quiet.p50)),
          quietP99: median(runs.map(({ quiet }) => quiet.p99)),
          p50: median(runs.map(({ attacked }) => attacked.p50)),
          p99: median(runs.map(({ attacked }) => attacked.p99)),
        }),
      },
      options,
    );
    rows.push(...measured.rows);
    failures.push(...measured.failures);
  }
  return { rows, failures };
}

function measureOnce(
  attack: Attack,
  server: PostgresServer,
  baseline: string | undefined,
): Promise<Measured> {
  return usingDatabase(server, async (databaseUrl) => {
    const running = await startTallyman({
      databaseUrl,
      tenants: 2,
      jobsPerRequest: 1,
      role: 'admin',
      baseline,
    });
    try {
      const { url, callers } = running;
      const [caller, other] = callers;
      if (!caller || !other) throw new Error('two tenants are needed');
      await seed(url, caller, 100, 20);
      await seed(url, other, 1000, 2_000);
      const call = (waitMs: number, seconds: number) =>
        child<CallerTask, Called>('caller.ts', { url, caller, perSecond: PER_SECOND, waitMs, seconds });
      const quiet = phaseOf(await call(0, QUIET_SECONDS));
      const [answered, called] = await Promise.all([
        child<AttackTask, Answered>('attacker.ts', {
          ...{ url, attack: attack.name, caller: other },
          seconds: LEAD_MS / 1000 + ATTACKED_SECONDS + 1,
        }),
        call(LEAD_MS, ATTACKED_SECONDS),
      ]);
      const attacked = phaseOf(called);
      return { value: attacked.p99 / quiet.p99, quiet, attacked, answered };
    } finally {
      await running.stop();
    }
  });
}

/** What lists find. */
async function seed(url: string, caller: Readonly<Record<string, string>>, amount: number, bytes: number) {
  const payload = { text: 'x'.repeat(bytes) };
  const { status } = await fetch(`${url}/v1/jobs/batch`, {
    method: 'POST',
    headers: { ...caller, 'content-type': 'application/json' },
    body: JSON.stringify({ jobs: Array.from({ length: amount }, () => ({ kind: KIND, payload })) }),
  });
  if (status !== 201) throw new Error(`the jobs before were answered with ${status}`);
}

export function neighbourTable(rows: readonly Row[]): string {
  const head = ['attack', 'system', 'p50 quiet', 'p50 ms', 'p99 quiet', 'p99 ms', 'p99 is', 'min–max'];
  const body = rows
    .filter(({ workload }) => workload.startsWith(NEIGHBOUR.name))
    .map((row) => [
      row.workload.slice(NEIGHBOUR.name.length + 1),
      row.system,
      ...[row.quietP50, row.p50, row.quietP99, row.p99].map((ms) => readable(ms as number)),
      `${readable(row.value)}×`,
      `${readable(row.min)}–${readable(row.max)}`,
    ]);
  return `${NEIGHBOUR.summary}\n${table(head, body)}`;
}
