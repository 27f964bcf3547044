/** The limit: the same HTTP server and the same driver, a table, one INSERT a request. In a process of its own. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import Fastify from 'fastify';
import pg from 'pg';
import { withClient } from '../../../lib/postgres.ts';
import { endWithUs, stop } from '../../../lib/processes.ts';
import type { RunningSystem, Surroundings } from './system.ts';

export async function startFastifyInsert({ databaseUrl }: Surroundings): Promise<RunningSystem> {
  await withClient(databaseUrl, (client) =>
    client.query(
      'create table jobs (id bigint generated always as identity primary key, payload json not null)',
    ),
  );
  const child = fork(fileURLToPath(import.meta.url), ['serve', databaseUrl], {
    stdio: ['ignore', 2, 2, 'ipc'],
  });
  endWithUs(child);
  const [url] = (await once(child, 'message')) as [string];
  return {
    url,
    callers: [{}],
    count: () =>
      withClient(databaseUrl, async (client) => {
        const { rows } = await client.query<{ n: number }>('select count(*)::int as n from jobs');
        return rows[0]?.n ?? 0;
      }),
    stop: () => stop(child, 'SIGTERM'),
  };
}

async function serve(databaseUrl: string): Promise<string> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 10 });
  const app = Fastify();
  app.post<{ Body: { payload: unknown } }>('/v1/jobs', async ({ body }, reply) => {
    const { rows } = await pool.query({
      name: 'one',
      text: 'insert into jobs (payload) values ($1) returning id',
      values: [JSON.stringify(body.payload)],
    });
    return reply.code(201).send({ id: rows[0].id });
  });
  app.post<{ Body: { jobs: { payload: unknown }[] } }>(
    '/v1/jobs/batch',
    { bodyLimit: 2 * 1024 * 1024 },
    async ({ body }, reply) => {
      const { rows } = await pool.query({
        name: 'many',
        text: 'insert into jobs (payload) select * from json_array_elements($1) returning id',
        values: [JSON.stringify(body.jobs.map(({ payload }) => payload))],
      });
      return reply.code(201).send({ ids: rows.map(({ id }) => id) });
    },
  );
  return app.listen({ port: 0, host: '127.0.0.1' });
}

if (process.argv[2] === 'serve' && process.send) {
  process.send(await serve(process.argv[3] ?? ''));
  process.once('disconnect', () => process.exit());
}
