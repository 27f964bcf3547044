import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../../support/engine.ts';
import { ok, type Reply, receiver, status } from './support/receiver.ts';
import { hurry, local, type WebhookScene, webhookScene } from './support/scene.ts';

const fileOf = (name: string): string => fileURLToPath(new URL(`./support/${name}.ts`, import.meta.url));

const workerProcess = ({ url, master }: WebhookScene): Promise<ChildProcess> =>
  started(fileOf('worker-process'), { url, master, policy: local });
const followerProcess = ({ url }: WebhookScene, batch: number): Promise<ChildProcess> =>
  started(fileOf('follower-process'), { url, batch });

async function started(program: string, options: object): Promise<ChildProcess> {
  const child = fork(program, [JSON.stringify(options)], {
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
    expect((await scene.webhooks.attempts()).items).toEqual([]);
    await workerProcess(scene);
    await until('the job is done', async () => {
      await hurry(scene);
      return (await scene.rows('select 1 from tallyman.jobs')).length === 0;
    });
    expect(to.requests).toHaveLength(2);
    const { items } = await scene.webhooks.attempts();
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
  await until('it is committed', async () => (await scene.webhooks.attempts()).items.length === 1);
  await kill(victim);
  await scene.emit('b');
  await workerProcess(scene);
  await until('the second is delivered', async () => (await scene.webhooks.attempts()).items.length === 2);
  expect(to.requests.map(({ headers }) => headers['x-bpc-event-type'])).toEqual(['a', 'b']);
});

test('WH-1: followers that are killed in the middle of the fan-out, with poison and a busy lane: each delivery is made once', async () => {
  const scene = await webhookScene();
  const { id: ordered } = await scene.endpoint({ url: 'http://127.0.0.1:9/', ordered: true });
  await scene.endpoint({ url: 'http://127.0.0.1:9/' });
  const emitted = async (from: number, to: number) => {
    const names = Array.from({ length: to - from }, (_, n) => n + from);
    await scene.events.emitMany(
      names.map((n) => ({ type: 'a', aggregateType: 't', aggregateId: `A-${n % 3}`, payload: { n } })),
    );
  };
  await emitted(0, 3);
  await scene.fanOut();
  // Somebody holds a lane; one event can never be delivered; and the fan-out is stopped before it writes.
  const client = await scene.tallyman.database.dedicated('somebody else');
  onTestFinished(() => client.end());
  await client.query('begin');
  await client.query(
    `select tallyman.enqueue('webhook.deliver', '{}', lane => 'endpoint:${ordered}:t:A-1', tenant_id => 'default')`,
  );
  await scene.rows(`
    create function refuse() returns trigger language plpgsql as $$
    begin
      if (select v.payload ->> 'n' from tallyman_events.events v where v.id = new.event_id) = '7' then
        raise exception 'poison';
      end if;
      return new;
    end $$;
    create trigger refuse before insert on tallyman_webhooks.dispatches for each row execute function refuse()`);
  const blocker = await scene.tallyman.database.dedicated('holds the fan-out');
  onTestFinished(() => blocker.end());
  const waiting = async () =>
    (
      await scene.rows(
        `select 1 from pg_locks where relation = 'tallyman_webhooks.dispatches'::regclass and not granted`,
      )
    ).length > 0;
  for (let round = 0; round < 3; round += 1) {
    await blocker.query('begin; lock table tallyman_webhooks.dispatches in share mode');
    await emitted(3 + round * 9, 12 + round * 9);
    const victim = await followerProcess(scene, 4);
    await until('it is in the middle', waiting);
    await kill(victim);
    await blocker.query('rollback');
    const next = await followerProcess(scene, 4);
    await until('a batch is committed', async () => {
      const [moved] = await scene.rows<{ some: boolean }>(
        `select cursor > (select max(event_id) from tallyman_webhooks.dispatches) - 9 as some
           from tallyman_events.listeners where name = 'webhooks'`,
      );
      return moved?.some === true;
    });
    await kill(next);
  }
  await client.query('rollback');
  await followerProcess(scene, 4);
  const expected = 2 * 30 - 2;
  const count = async () => (await scene.rows(`select 1 from tallyman_webhooks.dispatches`)).length;
  await until('all are made', async () => (await count()) >= expected);
  expect(await count()).toBe(expected);
  expect(
    await scene.rows(
      `select endpoint_id, event_id from tallyman_webhooks.dispatches group by 1, 2 having count(*) > 1`,
    ),
  ).toEqual([]);
  const lanes = await scene.rows<{ lane: string; inOrder: boolean }>(
    `select lane, array_agg((payload ->> 'event')::bigint order by seq) =
                  array_agg((payload ->> 'event')::bigint order by (payload ->> 'event')::bigint) as "inOrder"
       from tallyman.live_jobs where lane is not null group by lane order by lane`,
  );
  expect(lanes.map(({ inOrder }) => inOrder)).toEqual([true, true, true]);
  // How often it was tried depends on how long all this took: it is tried again after a minute.
  expect(await scene.rows(`select error from tallyman_events.set_aside`)).toEqual([{ error: 'poison' }]);
});
