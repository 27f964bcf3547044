/**
 * Appends facts to a JetStream log with several callers, until it is told to end. A fact that could not be appended is tried
 * again under its id. Prints a line for each fact that was acknowledged: its id and its offset.
 */
import { JetStreamLog } from '../../../../src/apps/boundary/store/jetstream/log.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { consoleLogger } from '../../../../src/engine/logger.ts';
import { fact } from './facts.ts';

interface Task {
  readonly database: string;
  readonly servers: readonly string[];
  readonly monitorUrls: readonly string[];
  readonly replicas: number;
  readonly tenantId: string;
  readonly name: string;
  readonly callers: number;
}

const task = JSON.parse(process.argv[2] ?? '{}') as Task;
const { tenantId, name, callers } = task;
const database = await Database.connect({ url: task.database });
const log = await JetStreamLog.open(database, { ...task, zone: 'plant-a', logger: consoleLogger });
const stream = { tenantId, buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;

let isEnding = false;
process.on('SIGTERM', () => {
  isEnding = true;
});

async function appendAll(caller: number): Promise<void> {
  for (let n = 1; !isEnding; n += 1) {
    const id = `${name}-${caller}-${n}`;
    for (;;) {
      try {
        const { offset } = await log.append(stream, fact(id));
        process.stdout.write(`${id} ${offset}\n`);
        break;
      } catch (error) {
        const { code, reason } = error as { code?: string; reason?: string };
        if (code !== 'UNAVAILABLE') throw error;
        process.stderr.write(`${id} ${reason}\n`);
        if (isEnding) return;
      }
    }
  }
}

await Promise.all(Array.from({ length: callers }, (_, i) => appendAll(i)));
await log.stop();
await database.close();
