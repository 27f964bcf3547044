import { spawnSync } from 'node:child_process';
import { Webhook } from 'standardwebhooks';
import { expect, test } from 'vitest';
import { drained, until } from '../../support/engine.ts';
import { type Received, type Receiver, receiver } from './support/receiver.ts';
import { type WebhookScene, webhookScene } from './support/scene.ts';

/** One delivery, as the receiver got it. */
async function delivered(
  scene: WebhookScene,
  { requests }: Receiver,
  payload: unknown = { n: 1 },
): Promise<Received> {
  const before = requests.length;
  await scene.emit('pallet.moved', 'P-1', payload);
  await until('it was delivered', () => requests.length > before);
  await drained(scene);
  return requests.at(-1) as Received;
}

const verify = (secret: string, { body, headers }: Received, text = body.toString()): unknown =>
  new Webhook(secret).verify(text, headers as Record<string, string>);

test('WH-3: the standardwebhooks library accepts what is sent, and refuses a changed body and an old timestamp', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { secret } = await scene.endpoint({ url: to.url });
  await scene.deliver();
  const request = await delivered(scene, to, { name: 'Ünïcode ☃' });
  expect(verify(secret, request)).toMatchObject({
    event_type: 'pallet.moved',
    payload: { name: 'Ünïcode ☃' },
  });
  expect(() => verify(secret, request, request.body.toString().replace('P-1', 'P-2'))).toThrow();
  const old = { ...request, headers: { ...request.headers, 'webhook-timestamp': '1600000000' } };
  expect(() => verify(secret, old)).toThrow(/timestamp/i);
  const other = await scene.endpoint({ url: to.url });
  expect(() => verify(other.secret, request)).toThrow();
});

test('WH-6, WH-3: after a rotation both secrets verify for a time, then only the new one', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { id, secret: old } = await scene.endpoint({ url: to.url });
  await scene.deliver();
  const fresh = await scene.webhooks.rotate(id);
  expect(fresh).not.toBe(old);
  const during = await delivered(scene, to);
  expect(during.headers['webhook-signature']?.split(' ')).toHaveLength(2);
  verify(old, during);
  verify(fresh, during);
  expect(pythonVerifies(fresh, during)).toBe(true);
  expect(pythonVerifies(old, during)).toBe(false);
  await scene.rows(
    `update tallyman_webhooks.endpoint_secrets set expires_at = now() where expires_at is not null`,
  );
  const after = await delivered(scene, to);
  verify(fresh, after);
  expect(() => verify(old, after)).toThrow();
  const last = await scene.webhooks.rotate(id, { keepOldForMs: 0 });
  const now = await delivered(scene, to);
  verify(last, now);
  expect(() => verify(fresh, now)).toThrow();
  expect((await scene.webhooks.get(id))?.secrets).toMatchObject([{ expiresAt: null }]);
});

/** Python's own hmac, over the bytes of the body, as docs/webhooks.md shows it. */
function pythonVerifies(secret: string, { body, headers }: Received): boolean {
  const program = `
import base64, hashlib, hmac, sys
key = base64.b64decode(sys.argv[1].removeprefix('whsec_'))
expected = 'sha256=' + hmac.new(key, sys.stdin.buffer.read(), hashlib.sha256).hexdigest()
print(hmac.compare_digest(expected, sys.argv[2]))`;
  const ran = spawnSync('python3', ['-c', program, secret, headers['x-bpc-signature'] ?? ''], {
    input: body,
  });
  if (ran.error) throw new Error(`python3 is needed for this test: ${ran.error.message}`);
  if (ran.status !== 0) throw new Error(ran.stderr.toString());
  return ran.stdout.toString().trim() === 'True';
}

test('WH-2: Python’s hmac verifies X-BPC-Signature over the bytes of the body', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { secret } = await scene.endpoint({ url: to.url });
  await scene.deliver();
  const request = await delivered(scene, to, { name: 'Ünïcode ☃', big: 1e21 });
  expect(request.headers['x-bpc-signature']).toMatch(/^sha256=[0-9a-f]{64}$/);
  expect(pythonVerifies(secret, request)).toBe(true);
  expect(pythonVerifies(secret, { ...request, body: Buffer.concat([request.body, Buffer.from(' ')]) })).toBe(
    false,
  );
});

test('WH-6: a secret is shown once and lies sealed, for its endpoint alone', async () => {
  const scene = await webhookScene();
  const { id, secret } = await scene.endpoint({ url: 'http://127.0.0.1/' });
  const other = await scene.endpoint({ url: 'http://127.0.0.1/' });
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  const everything = JSON.stringify([
    await scene.rows('select * from tallyman_webhooks.endpoints'),
    await scene.rows('select * from tallyman_webhooks.endpoint_secrets'),
    await scene.webhooks.get(id),
    await scene.webhooks.list(),
  ]);
  expect(everything).not.toContain(secret.slice(6));
  const [row] = await scene.rows<{ sealed: string }>(
    'select sealed from tallyman_webhooks.endpoint_secrets where endpoint_id = $1',
    [id],
  );
  expect(scene.box.open(row?.sealed ?? '', `webhook-endpoint:${id}`)).toBe(secret);
  expect(() => scene.box.open(row?.sealed ?? '', `webhook-endpoint:${other.id}`)).toThrow('cannot be opened');
});
