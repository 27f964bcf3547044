import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { createGateway, gatewayPolicies } from '../../src/apps/labels/gateways/index.ts';
import { exchange } from '../../src/apps/webhooks/delivery/exchange.ts';
import { AddressPolicy } from '../../src/network/addresses.ts';
import { guardedAgent } from '../../src/network/guarded-agent.ts';
import type { Network, Target } from '../../src/network/network.ts';
import { server } from '../server/support.ts';
import { readSource, sourcesOf } from '../support/sources.ts';

/** Forms of addresses that lead inside. */
const literal = [
  'https://127.0.0.1/',
  'https://127.1/',
  'https://2130706433/',
  'https://0x7f000001/',
  'https://0x7f.1/',
  'https://0177.0.0.1/',
  'https://１２７.0.0.1/',
  'https://127。0。0。1/',
  'https://0.0.0.0/',
  'https://10.0.0.5/',
  'https://172.16.0.1/',
  'https://192.168.1.1/',
  'https://100.64.0.1/',
  'https://169.254.169.254/latest/meta-data',
  'https://168.63.129.16/',
  'https://[::1]/',
  'https://[::]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[::ffff:169.254.169.254]/',
  'https://[64:ff9b::7f00:1]/',
  'https://[2002:7f00:1::]/',
  'https://[fd00:ec2::254]/',
  'https://[fe80::1]/',
  'https://224.0.0.1/',
  'https://255.255.255.255/',
];
const malformed = [
  'ftp://example.com/',
  'file:///etc/passwd',
  'https://user:pw@example.com/',
  'https://example.com/#x',
  'https://example.com@127.0.0.1/',
];
/** What a name may lead to. */
const resolved = ['127.0.0.1', '10.0.0.5', '169.254.169.254', '::1', 'fd00:ec2::254', '::ffff:10.0.0.1'];

/** Writes down where it would have gone, and goes nowhere. */
function recording(address: string): Network & { targets: Target[] } {
  const targets: Target[] = [];
  return {
    targets,
    resolve: async () => [address],
    connect: async (target): Promise<Socket> => {
      targets.push(target);
      throw Object.assign(new Error('recorded, not connected'), { code: 'RECORDED' });
    },
  };
}

const { signal } = new AbortController();
const image = { png: Buffer.alloc(1), hash: '', panel: { width: 1, height: 1, palette: 'bw' } } as const;

/** Every path on which a tenant chooses the address: connects as the product does, and tells the error. */
const tenantPaths: Record<string, (url: string, network: Network) => Promise<string>> = {
  webhooks: async (url, network) => {
    const agent = guardedAgent(new AddressPolicy(), network);
    const post = { url, headers: {}, body: Buffer.alloc(0), timeoutMs: 60_000, signal };
    return (await exchange(agent, post)).error?.message ?? 'no error';
  },
  'label gateways, AIMS': (url, network) =>
    pushed({ kind: 'aims', company: 'c', store: 's', username: 'u', password: 'p', url }, network),
  'label gateways, OpenEPaperLink': (url, network) => reported({ kind: 'openepaperlink', url }, network),
};

type Settings = Parameters<typeof createGateway>[0];
type Wanted = Settings extends infer S ? (S extends Settings ? Omit<S, 'timeoutMs'> : never) : never;

const gatewayOf = (settings: Wanted, network: Network) =>
  createGateway({ ...settings, timeoutMs: 60_000 } as Settings, {
    policy: gatewayPolicies({ 'labels.allowPrivateAddresses': false })('acme'),
    network,
  });
const pushed = (settings: Wanted, network: Network): Promise<string> =>
  gatewayOf(settings, network)
    .push({ mac: '00159DA0102B', page: 1, image }, signal)
    .then(() => 'no error', String);
const reported = (settings: Wanted, network: Network): Promise<string> =>
  gatewayOf(settings, network)
    .report(['00159DA0102B'], signal)
    .then(() => 'no error', String);

describe.each(Object.entries(tenantPaths))('SEC-3: %s', (_, connect) => {
  test('no form of an inner address is connected to, whatever is stored', async () => {
    for (const url of literal) {
      const network = recording('93.184.215.14');
      expect(await connect(url, network), url).toMatch(/ is /);
      expect([url, network.targets]).toEqual([url, []]);
    }
  });

  test('nor one that a name leads to, and the answer does not tell where it leads', async () => {
    for (const address of resolved) {
      const network = recording(address);
      const said = await connect('https://gateway.example.com/', network);
      expect(said).toContain('gateway.example.com leads to an address that is');
      expect(said).not.toContain(address);
      expect(network.targets).toEqual([]);
    }
  });

  test('a public one is connected to', async () => {
    const network = recording('93.184.215.14');
    await connect('https://gateway.example.com/', network);
    expect(network.targets).toEqual([
      { address: '93.184.215.14', port: 443, tls: { servername: 'gateway.example.com' } },
    ]);
  });
});

test('SEC-3: every form is refused when it is set up, except for gateways of the operator’s own tenant', async () => {
  const scene = await server({
    config: {
      'webhooks.allowPrivateAddresses': false,
      'webhooks.requireHttps': true,
      'labels.allowPrivateAddresses': false,
    },
  });
  const [tenant, home] = [await scene.as('admin', 'acme'), await scene.as('admin')];
  const aims = (url: string) => ({
    gateway: { kind: 'aims', url, company: 'c', store: 's', username: 'u', password: 'p' },
  });
  for (const url of [...literal, ...malformed]) {
    expect([url, (await tenant('POST', '/v1/webhooks', { url })).status]).toEqual([url, 400]);
    expect([url, (await tenant('PUT', '/v1/stores/s1', aims(url))).status]).toEqual([url, 400]);
  }
  expect((await tenant('GET', '/v1/stores/s1')).status).toBe(404);
  const refused = await tenant('PUT', '/v1/stores/s1', aims('http://192.168.1.20'));
  expect(refused.body.error.message).toContain('labels.allowPrivateAddresses');
  expect((await tenant('PUT', '/v1/stores/s1', aims('https://aims.example.com'))).status).toBe(200);
  expect((await home('PUT', '/v1/stores/s1', aims('http://192.168.1.20'))).status).toBe(200);
  for (const url of malformed) expect((await home('PUT', '/v1/stores/s2', aims(url))).status).toBe(400);
});

test('SEC-3: private networks by configuration', async () => {
  const scene = await server({ config: { 'labels.allowPrivateAddresses': '192.168.0.0/16' } });
  const tenant = await scene.as('admin', 'acme');
  const put = async (url: string) =>
    (await tenant('PUT', '/v1/stores/s1', { gateway: { kind: 'openepaperlink', url } })).status;
  expect([await put('http://192.168.1.20'), await put('http://10.0.0.1')]).toEqual([200, 400]);
});

test('SEC-3: what opens connections in an app is known: a tenant chooses the address only where the guard is', () => {
  const opens =
    /^import (?!type ).* from '(?:undici|mqtt|ioredis|amqplib|@nats-io\/.*|node:(?:net|tls|http|https|http2|dgram))'|\bhttpCall\(|(?<![.#\w])fetch\(/m;
  const found = sourcesOf('.ts').filter(
    (path) => path.startsWith('src/apps/') && opens.test(readSource(path)),
  );
  expect(found.map((path) => path.slice('src/apps/'.length))).toEqual(Object.keys(known).sort());
});

test('SEC-3: what a gateway answers is not passed on, but for a short plain reason', async () => {
  const secret = randomBytes(8).toString('hex');
  const { refusal } = await import('../../src/apps/labels/gateways/http.ts');
  expect(refusal('AIMS', 400, 'No such article', undefined).message).toBe(
    'AIMS answered 400: No such article',
  );
  const words = 'long '.repeat(40);
  for (const said of [`<html>${secret}</html>`, `{"token":"${secret}"}`, `x=${secret}`, words + secret])
    expect(refusal('AIMS', 400, said, undefined).message).not.toContain(secret);
});

/** Whose address it uses; docs/security.md says the same. */
const known = {
  'boundary/handoff/connections.ts': 'operator',
  'boundary/pairing/openssl.ts': 'none: tells names from addresses',
  'boundary/rpc/server.ts': 'listens',
  'boundary/sdk/connection.ts': 'the program that uses it',
  'boundary/store/jetstream/sync-check.ts': 'operator',
  'iot/mqtt/dial.ts': 'operator',
  'labels/gateways/http.ts': 'tenant',
  'labels/gateways/simulator/index.ts': 'listens',
  'rfid/wms/http.ts': 'operator',
  'webhooks/delivery/exchange.ts': 'tenant',
};
