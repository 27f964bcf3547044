import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { withClient } from '../../../lib/postgres.ts';
import { endWithUs, stop } from '../../../lib/processes.ts';
import { KIND } from '../workloads.ts';
import type { RunningSystem, Surroundings } from './system.ts';

const here = join(import.meta.dirname, '..', '..', '..', '..');

/** The server as a user starts it, with a rate limit that does not bind: one caller sends everything. */
export async function startTallyman({
  databaseUrl,
  tenants,
  jobsPerRequest,
  role,
  baseline,
}: Surroundings): Promise<RunningSystem> {
  const main = join(baseline ?? here, 'src/cli/main.ts');
  const env = {
    PATH: process.env.PATH ?? '',
    NO_COLOR: '1',
    DATABASE_URL: databaseUrl,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64'),
    TALLYMAN_RATE_PER_SECOND: '1000000',
    TALLYMAN_RATE_BURST: '1000000',
  };
  const cli = (...args: string[]): ChildProcess => {
    const child = spawn(process.execPath, [main, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    endWithUs(child);
    return child;
  };
  await saying(cli('migrate'));
  const callers: Record<string, string>[] = [];
  for (let tenant = 0; tenant < tenants; tenant += 1) {
    const name = `tenant-${tenant}`;
    await saying(cli('tenants', 'create', name));
    const key = await saying(
      cli('keys', 'create', '--name', 'bench', '--role', role ?? 'producer', '--tenant', name),
    );
    callers.push({ authorization: `Bearer ${key.trim()}` });
  }
  await withClient(databaseUrl, (client) =>
    client.query('select tallyman.register_kind($1, is_public => true)', [KIND]),
  );
  const server = cli('serve', '--only', 'api', '--port', '0');
  return {
    url: await saying(server, /"url":"(http:[^"]+)"/),
    callers,
    count: () =>
      withClient(databaseUrl, async (client) => {
        const { rows } = await client.query<{ jobs: number; audited: number }>(
          `select (select count(*)::int from tallyman.jobs) as jobs,
                  (select count(*)::int from tallyman_server.audit_events where outcome = 'done' and actor like 'key:%') as audited`,
        );
        const [{ jobs, audited } = { jobs: 0, audited: 0 }] = rows;
        if (audited * jobsPerRequest !== jobs)
          throw new Error(`${jobs} jobs, but ${audited} audited requests`);
        return jobs;
      }),
    stop: () => stop(server, 'SIGTERM'),
  };
}

/** Everything it printed, or the first group of a pattern as soon as that is there. */
function saying(child: ChildProcess, pattern?: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let printed = '';
    let logged = '';
    child.stdout?.on('data', (chunk) => {
      printed += chunk;
    });
    child.stderr?.on('data', (chunk) => {
      logged = `${logged}${chunk}`.slice(-4_000);
      const found = pattern?.exec(logged);
      if (found) resolve(found[1] ?? '');
    });
    child.once('close', (code) =>
      pattern || code !== 0 ? reject(new Error(`it ended with ${code}: ${logged}`)) : resolve(printed),
    );
  });
}
