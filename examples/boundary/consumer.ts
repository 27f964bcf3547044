// A consumer: facts in order, each at least once; one that cannot be handled is parked, and the others go on.
// NODE_URL=http://127.0.0.1:7443 PARKED=./parked.db node examples/boundary/consumer.ts
import { Consumer, ParkedFacts } from '../../src/apps/boundary/sdk/index.ts'; // in your project: from 'tallyman/boundary'

const parked = await ParkedFacts.open(process.env.PARKED ?? '');
const consumer = new Consumer({
  url: process.env.NODE_URL ?? '',
  fromZone: 'Plant A',
  toZone: 'Enterprise',
  name: 'erp',
  instance: 'erp-1', // one name for each place that may run it
  poison: { attempts: 3, backoff: { minMs: 10 }, parkIn: parked },
  onGap: (gap) => console.log('a fact is missing:', gap),
  handler: async (fact, { readObject }) => {
    if (fact.predicate === 'has_batch_attachment') {
      let bytes = 0;
      for await (const part of readObject()) bytes += part.length;
      console.log(`${fact.subject} has ${fact.reference?.fileName}, ${bytes} bytes`);
    } else if (fact.predicate === 'has_state')
      console.log(`${fact.subject} is ${JSON.stringify(fact.object)}`);
    else throw new Error(`nobody knows what "${fact.predicate}" means`);
  },
  logger: { debug() {}, info() {}, warn() {}, error: (fields, message) => console.log(message, fields) },
});
consumer.start();

process.once('SIGTERM', () => void consumer.stop());
await consumer.done;
console.log(`${parked.list().length} facts are parked`);
parked.close();
