/** Ours over the network: a node as a user starts it, and a producer with a certificate in this process. */
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import { Connection, type NodeClient } from '../../../../src/apps/boundary/sdk/connection.ts';
import { appendRequest } from '../../../../src/apps/boundary/sdk/fact.ts';
import { Batcher } from '../../../../src/engine/batching/batcher.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { withClient } from '../../../lib/postgres.ts';
import { endWithUs, execute, freePort, stop, temporaryFolder } from '../../../lib/processes.ts';
import { FROM, TO } from '../facts.ts';
import { countEntries, preload } from '../preload.ts';
import type { RunningSystem, Surroundings, System } from './system.ts';

const cli = join(import.meta.dirname, '..', '..', '..', '..', 'src/cli/main.ts');

/** `TO` connects to this node, and there is none: the node takes facts and does nothing else. */
async function startNode({
  url,
  size,
}: Surroundings): Promise<RunningSystem & { readonly client: NodeClient }> {
  const { path: folder, remove } = await temporaryFolder('tallyman-bench-zone-');
  const port = await freePort();
  const address = `https://localhost:${port}`;
  await execute(process.execPath, [cli, 'zones', 'pair', TO, FROM, '--folder', folder, '--url', address]);
  const config = join(folder, FROM, 'tallyman.config.json');
  const env = {
    ...process.env,
    DATABASE_URL: url,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64'),
  };
  const node = spawn(
    process.execPath,
    [cli, '--config', config, 'serve', '--only', 'boundary', '--migrate', '--port', '0'],
    { env, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  endWithUs(node);
  await new Promise<void>((resolve, reject) => {
    let said = '';
    node.stderr.on('data', (chunk) => {
      said = `${said}${chunk}`.slice(-10_000);
      if (said.includes(`:${port}`)) resolve();
    });
    node.once('exit', () => reject(new Error(`the node ended at its start: ${said}`)));
  });
  if (size.trimmed > 0) {
    const database = await Database.connect({ url, poolSize: 2 });
    await preload(database, size.trimmed);
    await database.close();
  }
  const pem = (name: string) => readFile(join(folder, name), 'utf8');
  const tls = {
    key: await pem(`${FROM}/producer.key`),
    cert: await pem(`${FROM}/producer.crt`),
    ca: await pem('ca.crt'),
  };
  const connection = new Connection({ url: address, tls });
  return {
    client: connection.client,
    append: () => Promise.reject(new Error('not of this system')),
    count: () => withClient(url, countEntries),
    async stop() {
      connection.close();
      await stop(node, 'SIGTERM');
      remove();
    },
  };
}

export const tallymanSingle: System = async (surroundings) => {
  const node = await startNode(surroundings);
  return { ...node, append: (fact) => node.client.appendFact(appendRequest(fact)) };
};

export const tallymanBatched: System = async (surroundings) => {
  const node = await startNode(surroundings);
  const batcher = new Batcher<FactInput, bigint>({
    maxBatch: 1000,
    // A second call under way would not keep the order of the facts.
    maxInFlight: 1,
    async send(facts) {
      const { results } = await node.client.appendFacts({ facts: facts.map(appendRequest) });
      return results.map(({ result }) =>
        result.case === 'appended' ? result.value.offset : new Error(`refused: ${result.value?.message}`),
      );
    },
  });
  return { ...node, append: (fact) => batcher.add(fact) };
};
