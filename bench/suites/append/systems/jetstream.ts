/** NATS JetStream: a subject for each id, published only if there is no message under it. */
import { hash, randomUUID } from 'node:crypto';
import { jetstreamManager, StorageType } from '@nats-io/jetstream';
import { connect, headers, type MsgHdrs, type NatsConnection } from '@nats-io/transport-node';
import type { FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import { Batcher } from '../../../../src/engine/batching/batcher.ts';
import { startNats } from '../../../lib/nats.ts';
import { textOf } from '../facts.ts';
import type { RunningSystem, System } from './system.ts';

interface Acknowledged {
  readonly seq?: number;
  readonly error?: { readonly description: string };
}

const subjectOf = ({ messageId }: FactInput): string => `facts.${hash('sha256', messageId).slice(0, 32)}`;

const onlyIfNew = (): MsgHdrs => {
  const made = headers();
  made.set('Nats-Expected-Last-Subject-Sequence', '0');
  return made;
};

async function request(nc: NatsConnection, subject: string, payload: string, own: MsgHdrs): Promise<number> {
  const answer = (await nc.request(subject, payload, { headers: own, timeout: 30_000 })).json<Acknowledged>();
  if (answer.error) throw new Error(answer.error.description);
  return answer.seq ?? 0;
}

async function open(syncAlways: boolean): Promise<{ nc: NatsConnection } & Omit<RunningSystem, 'append'>> {
  const server = await startNats({ syncAlways });
  const nc = await connect({ servers: server.url });
  const manager = await jetstreamManager(nc);
  await manager.streams.add({
    name: 'FACTS',
    subjects: ['facts.>'],
    storage: StorageType.File,
    num_replicas: 1,
    allow_atomic: true,
  });
  return {
    nc,
    count: async () => (await manager.streams.info('FACTS')).state.messages,
    async stop() {
      await nc.close();
      await server.stop();
    },
  };
}

const singleOn =
  (syncAlways: boolean): System =>
  async () => {
    const { nc, ...rest } = await open(syncAlways);
    return { ...rest, append: (fact) => request(nc, subjectOf(fact), textOf(fact), onlyIfNew()) };
  };

export const jetstream = singleOn(true);
export const jetstreamDefault = singleOn(false);

/** What the server takes in one atomic batch. */
const mostInABatch = 1000;

export const jetstreamBatched: System = async () => {
  const { nc, ...rest } = await open(true);
  const batcher = new Batcher<FactInput, number>({
    maxBatch: mostInABatch,
    maxInFlight: 1,
    async send(facts) {
      const id = randomUUID();
      let last = 0;
      for (const [i, fact] of facts.entries()) {
        const own = onlyIfNew();
        own.set('Nats-Batch-Id', id);
        own.set('Nats-Batch-Sequence', String(i + 1));
        if (i < facts.length - 1) nc.publish(subjectOf(fact), textOf(fact), { headers: own });
        else {
          own.set('Nats-Batch-Commit', '1');
          last = await request(nc, subjectOf(fact), textOf(fact), own);
        }
      }
      return facts.map((_, i) => last - facts.length + 1 + i);
    },
  });
  return { ...rest, append: (fact) => batcher.add(fact) };
};
