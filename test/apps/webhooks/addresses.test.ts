import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { AddressPolicy } from '../../../src/network/addresses.ts';
import type { Network, Target } from '../../../src/network/network.ts';
import { checkUrl } from '../../../src/network/url.ts';
import { until } from '../../support/engine.ts';
import { hurry, type WebhookScene, webhookScene } from './support/scene.ts';

/** Writes down where it would have gone, and goes nowhere. */
function recording(...answers: (readonly string[])[]): Network & { asked: string[]; targets: Target[] } {
  const asked: string[] = [];
  const targets: Target[] = [];
  return {
    asked,
    targets,
    resolve: async (name) => {
      asked.push(name);
      return answers[Math.min(asked.length, answers.length) - 1] ?? [];
    },
    connect: async (target): Promise<Socket> => {
      targets.push(target);
      throw Object.assign(new Error('recorded, not connected'), { code: 'RECORDED' });
    },
  };
}

const publicAddress = '93.184.215.14';

/** Delivers one event to the URL through this network, up to `tries` times; answers the error codes. */
async function tryIt(
  scene: WebhookScene,
  network: Network,
  url: string,
  tries = 1,
): Promise<(string | null)[]> {
  const { endpoint } = await scene.webhooks.add({ url, maxAttempts: tries });
  await scene.emit('a');
  await scene.deliver({ network, policy: {} });
  await until('it is given up', async () => {
    await hurry(scene);
    return (await scene.rows('select 1 from tallyman.dead_letters')).length === 1;
  });
  const { items } = await scene.webhooks.attempts({ endpointId: endpoint.id });
  return items.map(({ errorCode }) => errorCode).reverse();
}

describe('WH-7: where a name leads is checked at connect time', () => {
  test.each([
    { what: 'private', address: '10.0.0.5' },
    { what: 'private', address: '172.31.255.1' },
    { what: 'private', address: '192.168.1.1' },
    { what: 'loopback', address: '127.0.0.1' },
    { what: 'loopback', address: '::1' },
    { what: 'link-local', address: '169.254.10.10' },
    { what: 'link-local', address: 'fe80::1%eth0' },
    { what: 'metadata', address: '169.254.169.254' },
    { what: 'metadata', address: 'fd00:ec2::254' },
    { what: 'mapped', address: '::ffff:127.0.0.1' },
    { what: 'NAT64', address: '64:ff9b::7f00:1' },
  ])('WH-7: a name that resolves to $what $address is refused, and nothing is sent', async ({ address }) => {
    const scene = await webhookScene();
    const network = recording([address]);
    expect(await tryIt(scene, network, 'https://hooks.example.com/')).toEqual(['ADDRESS_REFUSED']);
    expect(network.asked).toEqual(['hooks.example.com']);
    expect(network.targets).toEqual([]);
  });

  test('WH-7: one forbidden address among public ones is enough', async () => {
    const scene = await webhookScene();
    const network = recording([publicAddress, '10.0.0.1']);
    expect(await tryIt(scene, network, 'https://hooks.example.com/')).toEqual(['ADDRESS_REFUSED']);
    expect(network.targets).toEqual([]);
  });

  test('WH-7: rebinding: the connection goes to the address that was checked, without a second question', async () => {
    const scene = await webhookScene();
    const network = recording([publicAddress], ['127.0.0.1']);
    expect(await tryIt(scene, network, 'https://hooks.example.com:8443/')).toEqual(['RECORDED']);
    expect(network.asked).toEqual(['hooks.example.com']);
    expect(network.targets).toEqual([
      { address: publicAddress, port: 8443, tls: { servername: 'hooks.example.com' } },
    ]);
  });

  test('WH-7: rebinding: a private address that shows up on the second resolution only is refused then', async () => {
    const scene = await webhookScene();
    const network = recording([publicAddress], ['169.254.169.254']);
    expect(await tryIt(scene, network, 'https://hooks.example.com/', 3)).toEqual([
      'RECORDED',
      'ADDRESS_REFUSED',
      'ADDRESS_REFUSED',
    ]);
    expect(network.targets.map(({ address }) => address)).toEqual([publicAddress]);
  });

  test('WH-7: an address in the URL is checked at connect time, too, and so is http', async () => {
    const scene = await webhookScene();
    const network = recording();
    const { endpoint } = await scene.webhooks.add({ url: 'https://127.0.0.1/', maxAttempts: 1 });
    await scene.webhooks.add({ url: 'http://127.0.0.1/', maxAttempts: 1 });
    await scene.emit('a');
    await scene.deliver({ network, policy: {} });
    await until('both are given up', async () => {
      return (await scene.rows('select 1 from tallyman.dead_letters')).length === 2;
    });
    const { items } = await scene.webhooks.attempts();
    expect(items.map(({ endpointId, errorCode }) => [endpointId === endpoint.id, errorCode]).sort()).toEqual([
      [false, 'HTTPS_REQUIRED'],
      [true, 'ADDRESS_REFUSED'],
    ]);
    expect(network).toMatchObject({ asked: [], targets: [] });
  });
});

describe('WH-7: addresses', () => {
  const policy = new AddressPolicy();

  test.each([
    '0.0.0.0',
    '10.255.255.255',
    '100.64.0.1',
    '100.100.100.200',
    '127.1.2.3',
    '168.63.129.16',
    '169.254.0.1',
    '172.16.0.1',
    '192.0.0.192',
    '192.168.0.1',
    '198.18.0.1',
    '224.0.0.1',
    '239.1.1.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:8.8.8.8',
    '::127.0.0.1',
    '64:ff9b::808:808',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    '3fff::1',
    '5f00::1',
    'fc00::1',
    'fd12::1',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    'example.com',
    '',
  ])('WH-7: %s is refused', (address) => {
    expect(policy.refusal(address)).toEqual(expect.any(String));
  });

  test.each([
    '8.8.8.8',
    '172.15.0.1',
    '172.32.0.1',
    '100.63.0.1',
    '193.0.0.1',
    '2606:4700::1',
    '2a00:1450:4001::8',
  ])('WH-7: %s is public', (address) => {
    expect(policy.refusal(address)).toBeUndefined();
  });

  test('WH-7: a list of networks allows those and no others', () => {
    const some = new AddressPolicy({ allowPrivate: ['10.1.0.0/16', 'fd00::/8'] });
    expect(
      ['10.1.2.3', 'fd00::1', '10.2.0.1', '127.0.0.1'].map((a) => some.refusal(a) === undefined),
    ).toEqual([true, true, false, false]);
    expect(new AddressPolicy({ allowPrivate: true }).refusal('127.0.0.1')).toBeUndefined();
    expect(() => new AddressPolicy({ allowPrivate: ['10.0.0.0/33'] })).toThrow('is not a network');
    expect(() => new AddressPolicy({ allowPrivate: ['localhost'] })).toThrow('is not a network');
  });

  test.each([
    { url: 'https://2130706433/', says: '127.0.0.1 is loopback' },
    { url: 'https://0x7f.1/', says: '127.0.0.1 is loopback' },
    { url: 'https://0177.0.0.1/', says: '127.0.0.1 is loopback' },
    { url: 'https://１２７.0.0.1/', says: '127.0.0.1 is loopback' },
    { url: 'https://[::ffff:169.254.169.254]/', says: 'not a public IPv6 address' },
    { url: 'https://169.254.169.254/latest/meta-data', says: 'link-local' },
    { url: 'http://example.com/', says: 'use https' },
    { url: 'ftp://example.com/', says: 'its scheme is "ftp"' },
    { url: 'https://user:pw@example.com/', says: 'user name or password' },
    { url: 'https://example.com/#x', says: 'fragment' },
    { url: `https://example.com/${'x'.repeat(2048)}`, says: 'characters long' },
    { url: 'example.com', says: 'is not a URL' },
  ])('WH-7: $url is refused when it is set up', ({ url, says }) => {
    expect(() => checkUrl(url, policy)).toThrow(says);
  });
});
