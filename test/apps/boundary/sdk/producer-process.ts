/** A producer with an outbox, to be killed. Prints the number of each fact once the outbox has it. */
import { writeSync } from 'node:fs';
import { messageId, OutboxProducer } from '../../../../src/apps/boundary/sdk/index.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';

const { url, outbox, first, last } = JSON.parse(process.argv[2] ?? '') as {
  url: string;
  outbox: string;
  first: number;
  last: number;
};
const producer = await OutboxProducer.open({
  url,
  fromZone: 'Plant A',
  outbox,
  logger: silentLogger,
  retry: { minMs: 10, maxMs: 100 },
  messageId: ({ subject }) => messageId(subject),
});

const append = async (n: number): Promise<void> => {
  const fact = { toZone: 'Enterprise', subject: `reading:${n}`, predicate: 'was_read' };
  const source = Buffer.from(`file of ${n} `.repeat(2000));
  // Every four hundredth has a file.
  await producer.append(
    n % 400 === 0
      ? { ...fact, attachment: { bucket: 'files', key: `f${n}`, source } }
      : { ...fact, object: { n, padding: 'x'.repeat(n % 100) } },
  );
};

for (let n = first; n <= last; ) {
  const some = n % 400 === 0 ? [n] : Array.from({ length: 400 - (n % 400) }, (_, i) => n + i).slice(0, 7);
  const batch = some.filter((each) => each <= last);
  await Promise.all(batch.map(append));
  n = (batch.at(-1) ?? n) + 1;
  writeSync(1, `accepted ${n - 1}\n`);
}
await producer.flush();
writeSync(1, `flushed ${JSON.stringify(producer.state())}\n`);
await producer.close();
