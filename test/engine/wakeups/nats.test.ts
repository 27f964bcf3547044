import { connect } from '@nats-io/transport-node';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { natsWakeup, queueOf, tokenOf } from '../../../src/engine/wakeups/nats.ts';
import type { Hint, Wakeup } from '../../../src/engine/wakeups/wakeup.ts';
import { eventually } from '../../support/eventually.ts';
import { privateNats } from '../../support/services/nats.ts';
import type { Service } from '../../support/services/service.ts';
import { wakeupConformance } from './conformance.ts';

async function sendRaw(
  url: string,
  bodies: readonly Uint8Array[],
  subject = 'tallyman.jobs.=',
): Promise<void> {
  const connection = await connect({ servers: url });
  for (const body of bodies) connection.publish(subject, body);
  await connection.drain();
}

wakeupConformance('NATS', {
  broker: privateNats,
  create: ({ url, ...settings }) => natsWakeup({ servers: url, ...settings }),
  source: { file: 'src/engine/wakeups/nats.ts', factory: 'natsWakeup', urlOption: 'servers' },
  sendRaw,
});

describe('Wake-ups through NATS: subjects', () => {
  const opened: (Service | Wakeup)[] = [];
  afterEach(async () => {
    for (const it of opened.splice(0).reverse())
      await ('status' in it ? it.stop() : it[Symbol.asyncDispose]());
  });
  const open = async (server: Service, options: Partial<Parameters<typeof natsWakeup>[0]> = {}) => {
    opened.push(server);
    await server.start();
    const hints: Hint[] = [];
    const wakeup = natsWakeup({ servers: server.url, ...options });
    opened.push(wakeup);
    await wakeup.start((hint) => hints.push(hint));
    return { server, wakeup, hints };
  };

  it('one subject a queue: a plain name stands for itself', async () => {
    const { server, wakeup } = await open(await privateNats(), { subjectPrefix: 'plant.jobs' });
    const listener = await connect({ servers: server.url });
    const subjects: string[] = [];
    listener.subscribe('>', {
      callback: (_, message) => {
        subjects.push(message.subject);
      },
    });
    await listener.flush();
    for (const queue of ['labels', 'label_print-2', 'a b', '', null])
      await wakeup.publish({ queue, jobId: '1' });
    await eventually(() => expect(subjects).toHaveLength(5));
    expect(subjects).toEqual([
      'plant.jobs.labels',
      'plant.jobs.label_print-2',
      'plant.jobs.a=0020b',
      'plant.jobs.==',
      'plant.jobs.=',
    ]);
    await listener.close();
  });

  it('a message without queue takes it from its subject, where that names one', async () => {
    const { server, hints } = await open(await privateNats());
    const body = [Buffer.from('{"job_id":1}')];
    await sendRaw(server.url, body, 'tallyman.jobs.a=0020b');
    await sendRaw(server.url, body, 'tallyman.jobs.two.words');
    await sendRaw(server.url, body, 'elsewhere.labels');
    await sendRaw(server.url, body, 'tallyman.jobs.labels');
    await eventually(() => expect(hints).toHaveLength(3));
    expect(hints.map((hint) => hint.queue)).toEqual(['a b', null, 'labels']);
  });

  it('a name too long for a subject is carried by the message', async () => {
    const { wakeup, hints } = await open(await privateNats());
    const queue = 'ü'.repeat(2_000);
    await wakeup.publish({ queue, jobId: '1' });
    await eventually(() => expect(hints).toEqual([{ queue, jobId: '1' }]));
  });

  it('logs in with what the address says, in its first server or a later one', async () => {
    const server = await privateNats({ user: 'tally', password: 's3cr@t' });
    const [secret, plain] = [server.url.replace('//', '//tally:s3cr%40t@'), server.url];
    const { wakeup } = await open(server, { servers: secret });
    expect(wakeup.status()).toEqual({ state: 'up' });
    const second = await open(server, { servers: ['nats://127.0.0.1:1', secret] });
    expect(second.wakeup.status()).toEqual({ state: 'up' });
    const refused = await open(server, { servers: plain });
    expect(refused.wakeup.status()).toMatchObject({
      state: 'down',
      reason: expect.stringMatching(/authorization/i),
    });
  });

  it('tokens are legal in a subject, and no two queues share one', () => {
    const name = fc.string({ unit: fc.constantFrom(...'a=_-. *>\t0ü🏷', '\ud800', '\udc00'), maxLength: 6 });
    fc.assert(
      fc.property(fc.oneof(name, fc.string({ unit: 'binary' })), (queue) => {
        const token = tokenOf(queue);
        expect(token).toMatch(/^[A-Za-z0-9_=-]+$/);
        expect(token).not.toBe(tokenOf(null));
        if (!token.startsWith('=x')) expect(queueOf(token)).toBe(queue);
      }),
    );
    expect(tokenOf('x'.repeat(9_999))).not.toBe(tokenOf('x'.repeat(9_998)));
    expect(queueOf(tokenOf('x'.repeat(9_999)))).toBeNull();
  });

  it.each(['', 'a b', 'a.*', '>', 'a..b', '.a'])('refuses the subject prefix "%s"', (subjectPrefix) => {
    expect(() => natsWakeup({ servers: 'nats://127.0.0.1:1', subjectPrefix })).toThrow(/subjectPrefix/);
  });

  it.each(['', 'http://host', 'nats://', 'nats://tally:s3cr@t@host:port'])(
    'refuses the server "%s"',
    (servers) => {
      expect(() => natsWakeup({ servers })).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }));
      expect(() => natsWakeup({ servers })).not.toThrow(/s3cr/);
    },
  );
});
