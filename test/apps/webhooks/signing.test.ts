import { spawnSync } from 'node:child_process';
import { createPublicKey, verify as verifySignature } from 'node:crypto';
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

/** The receiver's check of the contract, `hmac(secret.encode(), body)`, as docs/webhooks.md shows it. */
const ofContract = 'secret.encode()';
/** What receivers of older releases do. */
const decoding = "base64.b64decode(secret.removeprefix('whsec_'))";

/** Python's own hmac, over the bytes of the body. */
function pythonVerifies(secret: string, { body, headers }: Received, key = ofContract): boolean {
  const program = `
import base64, hashlib, hmac, sys
secret = sys.argv[1]
key = ${key}
expected = 'sha256=' + hmac.new(key, sys.stdin.buffer.read(), hashlib.sha256).hexdigest()
print(hmac.compare_digest(expected, sys.argv[2]))`;
  const ran = spawnSync('python3', ['-c', program, secret, headers['x-bpc-signature'] ?? ''], {
    input: body,
  });
  if (ran.error) throw new Error(`python3 is needed for this test: ${ran.error.message}`);
  if (ran.status !== 0) throw new Error(ran.stderr.toString());
  return ran.stdout.toString().trim() === 'True';
}

test('WH-2, WH-10: the check of the contract, hmac(secret.encode(), body), verifies X-BPC-Signature in Python', async () => {
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

test.each([
  'correct horse battery staple',
  'Ünïcode ☃ as a secret',
  'cGxhaW4gYmFzZTY0IHdpdGhvdXQgcHJlZml4',
  `whsec_${Buffer.from('a key of my own, 24 byte').toString('base64')}`,
])('WH-10: a secret of the user’s own, %s, is the key of both signatures', async (own) => {
  const scene = await webhookScene();
  const to = await receiver();
  const { id, secret } = await scene.endpoint({ url: to.url, secret: own });
  expect(secret).toBe(own);
  await scene.deliver();
  const request = await delivered(scene, to);
  expect(pythonVerifies(own, request)).toBe(true);
  expect(pythonVerifies(`${own}.`, request)).toBe(false);
  verifyOwn(own, request);
  expect(() => verifyOwn(`${own}.`, request)).toThrow();
  const next = 'another one, by rotation';
  expect(await scene.webhooks.rotate(id, { secret: next })).toBe(next);
  const both = await delivered(scene, to);
  verifyOwn(own, both);
  verifyOwn(next, both);
  expect(pythonVerifies(next, both)).toBe(true);
});

/** `whsec_` is decoded by the library; any other text is the key as it is. */
const verifyOwn = (secret: string, { body, headers }: Received): unknown => {
  const webhook = secret.startsWith('whsec_')
    ? new Webhook(secret.replace(/\.$/, ''))
    : new Webhook(new TextEncoder().encode(secret), { format: 'raw' });
  if (secret.startsWith('whsec_') && secret.endsWith('.')) throw new Error('not base64');
  return webhook.verify(body.toString(), headers as Record<string, string>);
};

test('WH-10: a secret of an older release goes on to verify as its receiver does it, until it is rotated', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { id, secret } = await scene.endpoint({ url: to.url });
  // As that release stored it: without the new column.
  await scene.rows('delete from tallyman_webhooks.endpoint_secrets');
  await scene.rows(
    `insert into tallyman_webhooks.endpoint_secrets (endpoint_id, tenant_id, sealed) values ($1, 'default', $2)`,
    [id, scene.box.seal(secret, `webhook-endpoint:${id}`)],
  );
  expect((await scene.webhooks.get(id))?.secrets).toMatchObject([{ xBpcKey: 'decoded' }]);
  await scene.deliver();
  const before = await delivered(scene, to);
  expect(pythonVerifies(secret, before, decoding)).toBe(true);
  expect(pythonVerifies(secret, before)).toBe(false);
  verify(secret, before);
  // With the same text: nobody has to learn a new secret.
  await scene.webhooks.rotate(id, { secret, keepOldForMs: 0 });
  const after = await delivered(scene, to);
  expect(pythonVerifies(secret, after)).toBe(true);
  verify(secret, after);
});

/** Of Standard Webhooks: the public key is `whpk_` and base64 of its 32 bytes. */
function ed25519Verifies(publicKey: string, { body, headers }: Received): boolean {
  const key = createPublicKey({
    key: {
      kty: 'OKP',
      crv: 'Ed25519',
      x: Buffer.from(publicKey.slice('whpk_'.length), 'base64').toString('base64url'),
    },
    format: 'jwk',
  });
  const content = Buffer.concat([
    Buffer.from(`${headers['webhook-id']}.${headers['webhook-timestamp']}.`),
    body,
  ]);
  return (headers['webhook-signature'] ?? '')
    .split(' ')
    .filter((signature) => signature.startsWith('v1a,'))
    .some((signature) => verifySignature(null, content, key, Buffer.from(signature.slice(4), 'base64')));
}

test('WH-10: Ed25519 as an option: node:crypto verifies v1a with the public key, and rotation keeps both', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const { id, secret } = await scene.endpoint({ url: to.url, ed25519: true });
  const publicKeys = async () =>
    (await scene.webhooks.get(id))?.publicKeys.map(({ publicKey }) => publicKey) ?? [];
  const [first = ''] = await publicKeys();
  expect(first).toMatch(/^whpk_[A-Za-z0-9+/]{43}=$/);
  await scene.deliver();
  const request = await delivered(scene, to, { name: 'Ünïcode ☃' });
  expect(ed25519Verifies(first, request)).toBe(true);
  expect(ed25519Verifies(first, { ...request, body: Buffer.concat([request.body, Buffer.from(' ')]) })).toBe(
    false,
  );
  verify(secret, request);
  expect(pythonVerifies(secret, request)).toBe(true);
  const second = await scene.webhooks.rotateKey(id);
  expect(await publicKeys()).toEqual([second, first]);
  const during = await delivered(scene, to);
  expect([ed25519Verifies(first, during), ed25519Verifies(second, during)]).toEqual([true, true]);
  await scene.webhooks.rotateKey(id, { keepOldForMs: 0 });
  const after = await delivered(scene, to);
  const [third = ''] = await publicKeys();
  expect([first, second, third].map((key) => ed25519Verifies(key, after))).toEqual([false, false, true]);
  await scene.webhooks.update(id, { ed25519: false });
  const off = await delivered(scene, to);
  expect(off.headers['webhook-signature']).toMatch(/^v1,\S+$/);
  const stored = JSON.stringify(await scene.rows('select * from tallyman_webhooks.endpoint_keys'));
  expect(stored).not.toContain('whsk_');
});
