import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Tallyman } from '../../src/index.ts';
import { type Started, scratch, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { until } from '../support/until.ts';

interface Asked {
  readonly name: string;
  /** What the server said was done. */
  readonly ids: readonly string[];
  readonly keyed: boolean;
}

test('API-1: the server is killed under load, five times: what it answered is there, and a repeated key is one job', {
  timeout: 300_000,
}, async () => {
  const random = seededRandom();
  const { url: databaseUrl, drop } = await emptyDatabase();
  const cwd = await scratch();
  const env = {
    DATABASE_URL: databaseUrl,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64'),
    TALLYMAN_RATE_PER_SECOND: '1000000',
    TALLYMAN_RATE_BURST: '1000000',
  };
  const cli = (...args: string[]): Started => start('src/cli/main.ts', args, { cwd, env });
  expect(await cli('migrate').ended).toMatchObject({ code: 0 });
  const key = (await cli('keys', 'create', '--name', 'load', '--role', 'producer').ended).stdout.trim();
  const tallyman = await Tallyman.open({ databaseUrl });
  const rows = async <R>(sql: string): Promise<R[]> => (await tallyman.database.query(sql)).rows as R[];
  await rows(`select tallyman.register_kind('parcel', is_public => true)`);

  let url: string | undefined;
  let serving: Started | undefined;
  const serve = async (): Promise<void> => {
    serving = cli('serve', '--only', 'api', '--port', '0');
    url = await serving.said(/"url":"(http:[^"]+)"/);
  };
  /** Undefined: no answer, nobody knows what became of it. */
  const post = async (path: string, body: object, idempotencyKey?: string) => {
    if (url === undefined) return undefined;
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
    };
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
    }).catch(() => undefined);
    const answer =
      response && ((await response.json().catch(() => undefined)) as { id: string; ids: string[] });
    return response?.status === 201 ? answer : undefined;
  };

  const asked: Asked[] = [];
  let stop = false;
  const client = async (number: number): Promise<void> => {
    for (let i = 0; !stop; i += 1) {
      const name = `${number}-${i}`;
      const job = { kind: 'parcel', payload: { name }, ...(number % 3 === 0 && { lane: `l${i % 5}` }) };
      const keyed = number % 4 !== 0;
      const [path, body] =
        number % 6 === 5 ? ['/v1/jobs/batch', { jobs: [job, job, job] }] : ['/v1/jobs', job];
      let answer = await post(path, body, keyed ? name : undefined);
      while (keyed && !answer) {
        await sleep(20);
        answer = await post(path, body, name);
      }
      if (!answer) await sleep(20);
      else asked.push({ name, keyed, ids: answer.ids ?? [answer.id] });
    }
  };

  try {
    await serve();
    const clients = Array.from({ length: 24 }, (_, number) => client(number));
    for (let kill = 0; kill < 5; kill += 1) {
      const before = asked.length;
      await until('requests are answered', () => asked.length > before + 100);
      await sleep(random.whole(50));
      url = undefined;
      serving?.child.kill('SIGKILL');
      await serving?.ended;
      await serve();
    }
    stop = true;
    await Promise.all(clients);
    serving?.child.kill('SIGTERM');
    await serving?.ended;

    const jobs = await rows<{ id: string; name: string }>(
      `select id, payload ->> 'name' as name from tallyman.jobs`,
    );
    const byName = Map.groupBy(jobs, ({ name }) => name);
    const lost = asked.flatMap(({ name, ids }) =>
      ids.every((id) => byName.get(name)?.some((job) => job.id === id)) ? [] : [name],
    );
    expect(lost).toEqual([]);
    const twice = asked.filter(({ name, keyed, ids }) => keyed && byName.get(name)?.length !== ids.length);
    expect(twice).toEqual([]);
    // Each job has its audit line, also those that nobody was told of.
    const [audited] = await rows<{ single: number; batches: number }>(
      `select count(*) filter (where action = 'jobs.enqueue')::int as single,
              count(*) filter (where action = 'jobs.enqueue_many')::int as batches
         from tallyman_server.audit_events where outcome = 'done'`,
    );
    expect((audited?.single ?? 0) + 3 * (audited?.batches ?? 0)).toBe(jobs.length);
    expect(asked.length).toBeGreaterThan(500);
    expect(await tallyman.check()).toEqual([]);
  } finally {
    await tallyman.close();
    await drop();
  }
});
