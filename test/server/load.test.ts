import { setTimeout as sleep } from 'node:timers/promises';
import autocannon from 'autocannon';
import { expect, test } from 'vitest';
import { scratch, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';

/** Resident memory of a process, in MiB, after its garbage was collected as far as a load allows. */
async function residentMiB(pid: number): Promise<number> {
  const { readFile } = await import('node:fs/promises');
  const pages = Number((await readFile(`/proc/${pid}/statm`, 'utf8')).split(' ')[1]);
  return (pages * 4096) / 2 ** 20;
}

test.skipIf(process.platform !== 'linux')(
  '64 connections, reading and writing: no error, memory flat (memory is read from /proc, so on Linux only)',
  { timeout: 120_000 },
  async () => {
    const { url: databaseUrl, drop } = await emptyDatabase();
    const cwd = await scratch();
    const secret = Buffer.alloc(32, 7).toString('base64');
    const env = {
      DATABASE_URL: databaseUrl,
      TALLYMAN_SECRET_KEY: secret,
      TALLYMAN_RATE_PER_SECOND: '1000000',
      TALLYMAN_RATE_BURST: '1000000',
    };
    const cli = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env });
    expect(await cli('migrate').ended).toMatchObject({ code: 0 });
    const key = (await cli('keys', 'create', '--name', 'load', '--role', 'admin').ended).stdout.trim();
    const serving = cli('serve', '--only', 'api', '--port', '0');
    try {
      const url = await serving.said(/"url":"(http:[^"]+)"/);
      const headers = { authorization: `Bearer ${key}` };
      const round = async (seconds: number) => {
        const result = await autocannon({
          url,
          connections: 64,
          duration: seconds,
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
        const { errors, timeouts, non2xx, requests } = result;
        return {
          errors,
          timeouts,
          total: requests.total,
          non2xx,
          rate: requests.average,
          p99: result.latency.p99,
          notFound: result['4xx'],
          serverErrors: result['5xx'],
        };
      };
      await round(5);
      const before = await residentMiB(serving.child.pid ?? 0);
      const rounds = [await round(6), await round(6)];
      await sleep(500);
      const after = await residentMiB(serving.child.pid ?? 0);
      for (const { errors, timeouts, serverErrors } of rounds)
        expect({ errors, timeouts, serverErrors }).toEqual({ errors: 0, timeouts: 0, serverErrors: 0 });
      // The job that is asked for is not there: a 404 is the right answer to a quarter of the requests.
      expect(rounds.every(({ total, notFound }) => notFound > 0 && notFound < total / 2)).toBe(true);
      console.info(
        `load: ${rounds.map(({ rate }) => Math.round(rate)).join(', ')} requests/s over 64 connections, p99 ${rounds.at(-1)?.p99} ms; resident ${before.toFixed(0)} then ${after.toFixed(0)} MiB`,
      );
      expect(after - before).toBeLessThan(40);
    } finally {
      serving.child.kill('SIGTERM');
      await serving.ended;
      await drop();
    }
  },
);
