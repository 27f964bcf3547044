import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../../support/engine.ts';
import { ok, type Reply, receiver, status } from './support/receiver.ts';
import { hurry, local, type WebhookScene, webhookScene } from './support/scene.ts';

const program = fileURLToPath(new URL('./support/worker-process.ts', import.meta.url));

async function workerProcess({ url, master }: WebhookScene): Promise<ChildProcess> {
  const child = fork(program, [JSON.stringify({ url, master, policy: local })], {
    execArgv: [],
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  onTestFinished(async () => {
    await kill(child);
  });
  await once(child, 'message');
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

type Moment = (scene: WebhookScene, received: () => boolean) => Promise<{ after: () => Promise<void> }>;

const whenReceived: Moment = async (_scene, received) => {
  await until('the receiver has the request', received);
  return { after: async () => {} };
};

/** Between the receiver's answer and what the worker writes about it. */
const beforeCommit: Moment = async (scene, received) => {
  const client = await scene.tallyman.database.dedicated('holds commits');
  onTestFinished(() => client.end());
  await client.query('begin; lock table tallyman_webhooks.dispatches in share mode');
  const waits = `select 1 from pg_locks
    where relation = 'tallyman_webhooks.dispatches'::regclass and not granted`;
  await until('the worker has the answer and wants to write', async () => {
    return received() && (await scene.rows(waits)).length > 0;
  });
  return { after: async () => void (await client.query('rollback')) };
};

const nothing: Reply = () => {};
const half: Reply = (_request, response) => {
  response.writeHead(200, { 'content-length': '100' }).write('half of it');
};

test.each<{ when: string; firstReply: Reply; moment: Moment }>([
  { when: 'the receiver has the request', firstReply: nothing, moment: whenReceived },
  { when: 'half of the answer is sent', firstReply: half, moment: whenReceived },
  { when: 'between the answer 200 and the commit', firstReply: ok, moment: beforeCommit },
  { when: 'between the answer 500 and the commit', firstReply: status(500), moment: beforeCommit },
])(
  'WH-1, WH-5: killed, $when: delivered again under the same ids, never not at all',
  async ({ firstReply, moment }) => {
    const scene = await webhookScene();
    const to = await receiver((...args) => (args[2] === 1 ? firstReply(...args) : ok(...args)));
    await scene.endpoint({ url: to.url });
    const eventId = await scene.emit('a');
    const reached = moment(scene, () => to.requests.length > 0);
    const victim = await workerProcess(scene);
    const { after } = await reached;
    await kill(victim);
    await after();
    expect((await scene.webhooks.deliveries()).items).toEqual([]);
    await workerProcess(scene);
    await until('the job is done', async () => {
      await hurry(scene);
      return (await scene.rows('select 1 from tallyman.jobs')).length === 0;
    });
    expect(to.requests).toHaveLength(2);
    const { items } = await scene.webhooks.deliveries();
    expect(items).toMatchObject([{ status: 'SUCCEEDED', eventId }]);
    for (const name of ['webhook-id', 'x-bpc-delivery-id'])
      expect(new Set(to.requests.map(({ headers }) => headers[name])).size).toBe(1);
    expect(to.requests[1]?.headers['x-bpc-delivery-id']).toBe(items[0]?.deliveryId);
    expect(await scene.rows('select status from tallyman.history')).toEqual([{ status: 'SUCCEEDED' }]);
  },
);

test('WH-1, WH-5: killed, after the commit: not delivered again', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  await scene.endpoint({ url: to.url });
  await scene.emit('a');
  const victim = await workerProcess(scene);
  await until('it is committed', async () => (await scene.webhooks.deliveries()).items.length === 1);
  await kill(victim);
  await scene.emit('b');
  await workerProcess(scene);
  await until('the second is delivered', async () => (await scene.webhooks.deliveries()).items.length === 2);
  expect(to.requests.map(({ headers }) => headers['x-bpc-event-type'])).toEqual(['a', 'b']);
});
