// A producer in a plant: a file, then the fact that names it, through an outbox that loses nothing.
// NODE_URL=http://127.0.0.1:7443 OUTBOX=./outbox.db node examples/boundary/producer.ts
import { messageId, OutboxProducer } from '../../src/apps/boundary/sdk/index.ts'; // in your project: from 'tallyman/boundary'

const producer = await OutboxProducer.open({
  url: process.env.NODE_URL ?? '', // with tls: { key, cert, ca } where the node is on another machine
  fromZone: 'Plant A',
  outbox: process.env.OUTBOX ?? '',
  onDelivered: ({ input, offset }) => console.log(`${input.subject} is stored at offset ${offset}`),
  onParked: ({ input, reason }) => console.log(`${input.subject} was refused: ${reason}`),
});

const key = 'order-2026-03-06-001.pdf';
const attached = await producer.append({
  messageId: messageId('work_order', 'WO-2026-001', 'attachment', key),
  toZone: 'Enterprise',
  subject: 'work_order:WO-2026-001',
  predicate: 'has_batch_attachment',
  correlationId: 'order-2026-03-06-001',
  labels: { line: '4' },
  attachment: {
    bucket: 'batch-files',
    key,
    source: Buffer.from('%PDF-1.7 …'), // or { file: '/path/of/it' }
    mediaType: 'application/pdf',
    fileName: key,
  },
});
console.log(`the outbox has it: ${attached.isNew}`);

// The same again changes nothing, now or in a year.
const done = { toZone: 'Enterprise', subject: 'work_order:WO-2026-001', predicate: 'has_state' };
for (let i = 0; i < 3; i += 1)
  await producer.append({ ...done, messageId: messageId('WO-2026-001', 'done'), object: { state: 'done' } });

await producer.flush(); // only to end well: without it the facts go when the program runs again
await producer.close();
