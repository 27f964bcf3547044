/**
 * A producer in a zone's network: several callers append over mutual TLS, each fact again and again until there is an answer. Prints
 * a line for each answer. Ends after SIGTERM, when nothing is without an answer.
 */
import { readFileSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { BoundaryCallError, DirectProducer } from '../../../src/apps/boundary/sdk/index.ts';
import { attachmentOf, contentOf } from './content.ts';

export interface ProducerTask {
  readonly url: string;
  readonly from: string;
  readonly to: string;
  readonly callers: number;
  /** Of each caller, after an answer. */
  readonly restMs: number;
  readonly files: { readonly key: string; readonly cert: string; readonly ca: string };
}

const task = JSON.parse(process.argv[2] ?? '') as ProducerTask;
const [key, cert, ca] = [task.files.key, task.files.cert, task.files.ca].map((path) =>
  readFileSync(path, 'utf8'),
) as [string, string, string];
const producer = new DirectProducer({
  url: task.url,
  tls: { key, cert, ca },
  fromZone: task.from,
  timeoutMs: 10_000,
});
let isStopping = false;
process.on('SIGTERM', () => {
  isStopping = true;
});

async function appended(messageId: string): Promise<number> {
  const { object, attachmentBytes } = contentOf(messageId);
  const fact = { messageId, toZone: task.to, subject: `order:${messageId}`, predicate: 'has_state', object };
  const source = Buffer.concat([...attachmentOf(messageId, attachmentBytes)]);
  const { object: _, ...bare } = fact;
  for (;;) {
    try {
      const attachment = { bucket: 'files', key: messageId, source };
      return (await producer.append(attachmentBytes > 0 ? { ...bare, attachment } : fact)).offset;
    } catch (error) {
      // Refused for good: nothing here may be.
      if (!(error instanceof BoundaryCallError) || !error.mayPass) throw error;
      await sleep(50);
    }
  }
}

async function call(caller: number): Promise<void> {
  for (let n = 1; !isStopping; n += 1) {
    const id = `${task.from}/${caller}/${n}`;
    writeSync(1, `${id} ${await appended(id)}\n`);
    await sleep(task.restMs);
  }
}

await Promise.all(Array.from({ length: task.callers }, (_, i) => call(i + 1)));
producer.close();
