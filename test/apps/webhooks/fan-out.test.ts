import { expect, onTestFinished, test } from 'vitest';
import { webhookFollower } from '../../../src/apps/webhooks/follower.ts';
import { drained, until } from '../../support/engine.ts';
import { receiver } from './support/receiver.ts';
import { type WebhookScene, webhookScene } from './support/scene.ts';

/*
 * What one tenant, one event or one open transaction does must not hold up the deliveries of the others.
 */

const url = 'http://127.0.0.1:9/';

const emit = ({ events }: WebhookScene, tenantId: string, aggregateId: string, n: number) =>
  events.emit({ type: 'moved', aggregateType: 'pallet', aggregateId, payload: { n }, tenantId });

/** `aggregate n` of each delivery, in the order in which they were made. */
const made = async ({ rows }: WebhookScene, tenantId: string): Promise<string[]> =>
  (
    await rows<{ what: string }>(
      `select v.aggregate_id || ' ' || (v.payload ->> 'n') as what
         from tallyman_webhooks.dispatches d join tallyman_events.events v on v.id = d.event_id
        where d.tenant_id = $1 and not d.manual order by d.job_id`,
      [tenantId],
    )
  ).map(({ what }) => what);

/** A transaction of somebody else that stays open until `end`. */
async function openTransaction(scene: WebhookScene, sql: string) {
  const client = await scene.tallyman.database.dedicated('somebody else');
  onTestFinished(() => client.end());
  await client.query('begin');
  await client.query(sql);
  return { end: (how: 'commit' | 'rollback' = 'commit') => client.query(how) };
}

test('WH-8: a lane that another transaction writes into holds up its own deliveries only, and they stay in order', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { id } = await scene.endpoint({ url: to.url, tenantId: 'busy', ordered: true });
  await scene.endpoint({ url, tenantId: 'other' });
  await emit(scene, 'busy', 'A', 1);
  await scene.fanOut();
  // Somebody redelivers, and does not commit.
  const open = await openTransaction(
    scene,
    `select tallyman_webhooks.deliver(array_agg(event_id), array_agg(endpoint_id), true)
       from tallyman_webhooks.dispatches where endpoint_id = ${id}`,
  );
  await emit(scene, 'busy', 'A', 2);
  await emit(scene, 'busy', 'B', 1);
  await emit(scene, 'other', 'A', 1);
  const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
  onTestFinished(() => follower.stop());
  follower.start();
  await until('the other tenant has its delivery', async () => (await made(scene, 'other')).length === 1);
  await until('the other lane goes on, too', async () => (await made(scene, 'busy')).length === 2);
  expect(await made(scene, 'busy')).toEqual(['A 1', 'B 1']);
  await emit(scene, 'busy', 'A', 3);
  await emit(scene, 'other', 'A', 2);
  await until('the other tenant goes on', async () => (await made(scene, 'other')).length === 2);
  await open.end();
  await until('the lane is free', async () => (await made(scene, 'busy')).length === 4);
  expect(await made(scene, 'busy')).toEqual(['A 1', 'B 1', 'A 2', 'A 3']);
  await scene.deliver();
  await drained(scene);
  const arrived = to.requests.map(({ body }) => JSON.parse(String(body)));
  expect(arrived.filter(({ aggregate_id }) => aggregate_id === 'A').map(({ payload }) => payload.n)).toEqual([
    1, 1, 2, 3,
  ]);
});

test('WH-8: a lane that is being made in another transaction holds up no other tenant', async () => {
  const scene = await webhookScene();
  const { id } = await scene.endpoint({ url, tenantId: 'busy', ordered: true });
  await scene.endpoint({ url, tenantId: 'other' });
  await emit(scene, 'busy', 'A', 1);
  const open = await openTransaction(
    scene,
    `select tallyman.enqueue('webhook.deliver', '{}', tenant_id => 'busy', lane => 'endpoint:${id}:pallet:A')`,
  );
  await emit(scene, 'other', 'A', 1);
  const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
  onTestFinished(() => follower.stop());
  follower.start();
  await until('the other tenant has its delivery', async () => (await made(scene, 'other')).length === 1);
  expect(await made(scene, 'busy')).toEqual([]);
  await open.end('rollback');
  await until('it is made', async () => (await made(scene, 'busy')).length === 1);
});

test.each([
  { what: 'locks', sql: 'select 1 from tallyman_webhooks.endpoints where id = $ for update', how: 'commit' },
  {
    what: 'is about to remove',
    sql: 'delete from tallyman_webhooks.endpoints where id = $',
    how: 'rollback',
  },
] as const)(
  'WH-8: an endpoint that another transaction $what holds up no other endpoint, and misses nothing',
  async ({ sql, how }) => {
    const scene = await webhookScene();
    const { id } = await scene.endpoint({ url, tenantId: 'busy' });
    await scene.endpoint({ url, tenantId: 'other' });
    const open = await openTransaction(scene, sql.replace('$', id));
    await emit(scene, 'busy', 'A', 1);
    await emit(scene, 'other', 'A', 1);
    const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
    onTestFinished(() => follower.stop());
    follower.start();
    await until('the other has its delivery', async () => (await made(scene, 'other')).length === 1);
    expect(await made(scene, 'busy')).toEqual([]);
    await open.end(how);
    await until('so has this one', async () => (await made(scene, 'busy')).length === 1);
    expect(await scene.rows('select 1 from tallyman_webhooks.held_back')).toEqual([]);
  },
);

test('WH-1: an endpoint that is removed while its deliveries are held back leaves nothing behind', async () => {
  const scene = await webhookScene();
  const { id } = await scene.endpoint({ url });
  const open = await openTransaction(scene, `delete from tallyman_webhooks.endpoints where id = ${id}`);
  await emit(scene, 'default', 'A', 1);
  const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
  onTestFinished(() => follower.stop());
  follower.start();
  const held = () => scene.rows('select 1 from tallyman_webhooks.held_back');
  await until('it is held back', async () => (await held()).length === 1);
  // Until it is decided, the event is needed.
  await scene.rows(`update tallyman_events.events set created_at = now() - interval '2 days'`);
  expect(await scene.events.purge({ keepMs: 86_400_000 })).toBe(0);
  await open.end();
  await until('nothing is left', async () => (await held()).length === 0);
  expect(await scene.events.purge({ keepMs: 86_400_000 })).toBe(1);
});

test('WH-1: an event that cannot be handled holds up no other; it is delivered once it can be', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url, tenantId: 'poisoned' });
  await scene.endpoint({ url, tenantId: 'other' });
  await scene.rows(`
    create table poison (event_id bigint);
    create function refuse() returns trigger language plpgsql as $$
    begin
      if exists (select 1 from poison p where p.event_id = new.event_id) then
        raise exception 'poison';
      end if;
      return new;
    end $$;
    create trigger refuse before insert on tallyman_webhooks.dispatches for each row execute function refuse();`);
  for (let n = 1; n <= 9; n += 1) {
    const { position } = await emit(scene, n % 2 ? 'other' : 'poisoned', 'A', n);
    if (n === 4 || n === 6) await scene.rows('insert into poison values ($1)', [position]);
  }
  const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
  onTestFinished(() => follower.stop());
  follower.start();
  await until('the others are delivered', async () => (await made(scene, 'other')).length === 5);
  expect(await made(scene, 'other')).toEqual(['A 1', 'A 3', 'A 5', 'A 7', 'A 9']);
  expect(await made(scene, 'poisoned')).toEqual(['A 2', 'A 8']);
  expect(
    await scene.rows(`select tries, error from tallyman_events.set_aside where listener = 'webhooks'`),
  ).toEqual([
    { tries: 1, error: 'poison' },
    { tries: 1, error: 'poison' },
  ]);
  // What is set aside is kept.
  await scene.rows(`update tallyman_events.events set created_at = now() - interval '2 days'`);
  await scene.rows('delete from tallyman.jobs');
  expect(await scene.events.purge({ keepMs: 86_400_000 })).toBe(7);
  await scene.rows('delete from poison; update tallyman_events.set_aside set retry_at = now()');
  await until('they are delivered', async () => (await made(scene, 'poisoned')).length === 2);
  expect(await made(scene, 'poisoned')).toEqual(['A 4', 'A 6']);
  expect(await scene.rows('select 1 from tallyman_events.set_aside')).toEqual([]);
});

test('WH-1: a payload that PostgreSQL cannot read is delivered, and stops nobody', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url });
  // JSON can say what text cannot hold; SQL may emit any type.
  await scene.rows(
    `select tallyman_events.emit('job.dead_letter', 'job', '1', '{"kind": "\\u0000", "n": 1}'),
            tallyman_events.emit('moved', 'pallet', 'A', '{"n": 2}')`,
  );
  const follower = webhookFollower(scene.tallyman.database, { pollMs: 20 });
  onTestFinished(() => follower.stop());
  follower.start();
  await until(
    'both are made',
    async () => (await scene.rows('select 1 from tallyman_webhooks.dispatches')).length === 2,
  );
});

test('WH-9: a redelivery that commits while the fan-out runs does not deliver an event twice', async () => {
  const scene = await webhookScene();
  const { id } = await scene.endpoint({ url });
  await emit(scene, 'default', 'A', 1);
  await scene.fanOut();
  await emit(scene, 'default', 'A', 2);
  // The fan-out has found what to deliver, and is held up before it writes.
  const gate = await openTransaction(scene, 'lock table tallyman_webhooks.dispatches in share mode');
  const follower = webhookFollower(scene.tallyman.database);
  const turn = follower.turn();
  await until(
    'the fan-out wants to write',
    async () =>
      (
        await scene.rows(
          `select 1 from pg_locks where relation = 'tallyman_webhooks.dispatches'::regclass and not granted`,
        )
      ).length === 1,
  );
  const range = { endpointId: id, from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) };
  const redelivered = scene.webhooks.redeliverRange(range);
  // Where it redelivers, it waits for the same table: in the order of the queue it comes second.
  await Promise.race([
    redelivered,
    until(
      'both wait',
      async () =>
        (
          await scene.rows(
            `select 1 from pg_locks where relation = 'tallyman_webhooks.dispatches'::regclass and not granted`,
          )
        ).length === 2,
    ),
  ]);
  await gate.end();
  await Promise.all([turn, redelivered]);
  expect(await made(scene, 'default')).toEqual(['A 1', 'A 2']);
  expect(await scene.rows('select 1 from tallyman_webhooks.dispatches')).toHaveLength(2);
  expect(await redelivered).toBe(0);
});
