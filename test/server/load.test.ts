import autocannon from 'autocannon';
import { expect, test } from 'vitest';
import { scratch, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';

/** On SIGUSR2 the server collects its garbage: what is left then is what it holds on to, however often it collected before. */
const collector = `process.on('SIGUSR2', () => { gc(); process.stderr.write('collected;'); })`;

test('64 connections, reading and writing: no error, memory flat', { timeout: 900_000 }, async () => {
  const { url: databaseUrl, drop } = await emptyDatabase();
  const cwd = await scratch();
  const env = {
    DATABASE_URL: databaseUrl,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64'),
    TALLYMAN_RATE_PER_SECOND: '1000000',
    TALLYMAN_RATE_BURST: '1000000',
    NODE_OPTIONS: `--max-old-space-size=96 --expose-gc --import=data:text/javascript,${encodeURIComponent(collector)}`,
  };
  const cli = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env });
  expect(await cli('migrate').ended).toMatchObject({ code: 0 });
  const key = (await cli('keys', 'create', '--name', 'load', '--role', 'admin').ended).stdout.trim();
  const serving = cli('serve', '--only', 'api', '--port', '0');
  try {
    const url = await serving.said(/"url":"(http:[^"]+)"/);
    const headers = { authorization: `Bearer ${key}` };
    let collections = 0;
    const heldMiB = async () => {
      collections += 1;
      serving.child.kill('SIGUSR2');
      await serving.said(new RegExp(`(?:collected;[^]*){${collections}}`));
      const metrics = await (await fetch(`${url}/metrics`, { headers })).text();
      return Number(/^nodejs_heap_size_used_bytes (\S+)/m.exec(metrics)?.[1]) / 2 ** 20;
    };
    /** Loads it; answers what autocannon saw, and what the heap holds after that. */
    const round = async (amount: number) => {
      const result = await autocannon({
        url,
        connections: 64,
        amount,
        // In seconds: for what hangs, not for what is slow.
        timeout: 120,
        headers,
        requests: [
          { method: 'GET', path: '/v1/jobs?limit=10' },
          { method: 'GET', path: '/v1/queues' },
          {
            method: 'PATCH',
            path: '/v1/queues/load',
            headers: { ...headers, 'content-type': 'application/json' },
            body: '{"max_running":5}',
          },
          { method: 'GET', path: '/v1/jobs/1' },
        ],
      });
      return { ...result, heldMiB: await heldMiB() };
    };
    await round(1500);
    const rounds = [await round(1500), await round(1500), await round(1500)];
    for (const { errors, timeouts, '5xx': serverErrors } of rounds)
      expect({ errors, timeouts, serverErrors }).toEqual({ errors: 0, timeouts: 0, serverErrors: 0 });
    // The job that is asked for is not there: a 404 is the right answer to a quarter of the requests.
    for (const { requests, '4xx': notFound } of rounds) {
      expect(notFound).toBeGreaterThan(0);
      expect(notFound).toBeLessThan(requests.total / 2);
    }
    const held = rounds.map((round) => Number(round.heldMiB.toFixed(1)));
    const rates = rounds.map(({ requests }) => Math.round(requests.average));
    const total = rounds.reduce((sum, { requests }) => sum + requests.total, 0);
    console.info(
      `load: ${rates} requests/s over 64 connections, ${total} in all; the heap holds ${held} MiB`,
    );
    expect((held[2] ?? 0) - (held[0] ?? 0)).toBeLessThan(4);
  } finally {
    serving.child.kill('SIGTERM');
    await serving.ended;
    await drop();
  }
});
