/** A PostgreSQL server in a zone's network. Does what the lines on its standard input say, and ends with it. */
import { writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { startEmbedded } from '../../../src/engine/database/embedded/index.ts';

const server = await startEmbedded({ dataDir: process.argv[2] ?? '', settings: { max_connections: '60' } });
writeSync(1, `${server.url}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...rest] = line.split(' ');
  if (verb === 'kill') server.kill(rest[0] as NodeJS.Signals);
  else if (verb === 'restart') await server.restart();
  else {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    const { rowCount } = await client.query(line).finally(() => client.end());
    writeSync(1, `${rowCount}\n`);
    continue;
  }
  writeSync(1, 'done\n');
}
await server.stop();
