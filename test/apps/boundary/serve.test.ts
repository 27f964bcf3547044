import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, test } from 'vitest';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { makeAuthority, makeCertificate } from '../../../src/apps/boundary/pairing/openssl.ts';
import { loadConfig } from '../../../src/host/config.ts';
import { until } from '../../support/until.ts';
import { clientOf, factOf, type Place, pairedZones, serveZone } from './zones.ts';

/** Of the hand-offs out and in. */
const bothAre = async ({ rows }: Place, mode: string): Promise<boolean> =>
  (await rows('select 1 from boundary.handoffs where mode = $1', [mode])).length === 2;

const eventsOf = async ({ rows }: Place) =>
  (await rows<{ type: string }>('select event_type as type from tallyman_events.events order by id')).map(
    ({ type }) => type,
  );

const fetchAll = async (client: Awaited<ReturnType<typeof clientOf>>, from: string, to: string) => {
  const { facts } = await client.fetchFacts({
    stream: { fromZone: from, toZone: to },
    consumerName: 'erp',
    limit: 1000,
  });
  return facts.map(({ entry }) => (entry.case === 'fact' ? entry.value.envelope?.messageId : entry.case));
};

describe('the part boundary of serve', () => {
  test('is off, and opens no port, while no zone is configured', async () => {
    const { plant } = await pairedZones();
    const { DATABASE_URL = '', TALLYMAN_SECRET_KEY = '' } = plant.env;
    const serving = await serveZone({ env: { DATABASE_URL, TALLYMAN_SECRET_KEY } });
    expect(serving.lines.at(-1)).toBe('boundary   off (boundary.zone is not set)');
    expect(await plant.rows('select 1 from boundary.streams')).toEqual([]);
  });

  test('refuses files that cannot be used, with the name of their key', async () => {
    const { plant, enterprise } = await pairedZones();
    const refused = (more: Record<string, string>) => serveZone(plant, more);
    await expect(refused({ TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: '/nowhere' })).rejects.toThrow(
      /boundary\.receiptKeyFile \(\/nowhere\) cannot be used: .*ENOENT/,
    );
    await expect(
      refused({ TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: join(plant.folder, 'peer.key') }),
    ).rejects.toThrow(/boundary\.receiptKeyFile .* not ed25519/);
    await expect(
      refused({ TALLYMAN_BOUNDARY_TLS_KEY_FILE: join(plant.folder, 'producer.key') }),
    ).rejects.toThrow(/boundary\.tls\.keyFile .* not the key of boundary\.tls\.certFile/);
    await expect(
      refused({
        TALLYMAN_BOUNDARY_TLS_CERT_FILE: join(enterprise.folder, 'peer.crt'),
        TALLYMAN_BOUNDARY_TLS_KEY_FILE: join(enterprise.folder, 'peer.key'),
      }),
    ).rejects.toThrow(/boundary\.tls\.certFile .*zone\/enterprise\/peer, and this node needs .* "plant-a"/);
    const file = join(plant.folder, 'broken.crt');
    await writeFile(file, 'no certificate');
    await expect(refused({ TALLYMAN_BOUNDARY_TLS_CA_FILE: file })).rejects.toThrow(/boundary\.tls\.caFile/);
  });

  test('BND-8, BND-9: both directions cross over connections of the plant; while the enterprise is away facts gather', async () => {
    const { plant, enterprise } = await pairedZones();
    const plantNode = await serveZone(plant);
    expect(plantNode.lines.at(-1)).toMatch(
      /zone plant-a on https:\/\/127.0.0.1:\d+, push and pull with enterprise$/,
    );
    const producer = await clientOf(plant, 'producer', plantNode.port);
    await producer.appendFact(factOf('a1', 'plant-a', 'enterprise'));
    // Nobody is there yet.
    await until('the plant is autonomous', () => bothAre(plant, 'autonomous'));
    const first = await serveZone(enterprise);
    expect(first.lines.at(-1)).toContain('plant-a connects');
    const consumer = await clientOf(enterprise, 'consumer', first.port);
    const crossed = () => fetchAll(consumer, 'plant-a', 'enterprise');
    await until('the first fact has crossed', async () => (await crossed()).length === 1);
    const back = await clientOf(enterprise, 'producer', first.port);
    await back.appendFact(factOf('b1', 'enterprise', 'plant-a'));
    const plantConsumer = await clientOf(plant, 'consumer', plantNode.port);
    await until(
      'a fact came into the plant',
      async () => (await fetchAll(plantConsumer, 'enterprise', 'plant-a')).length === 1,
    );
    await first.stop();
    await until('both hand-offs are autonomous', () => bothAre(plant, 'autonomous'));
    await producer.appendFact(factOf('a2', 'plant-a', 'enterprise'));
    const second = await serveZone(enterprise);
    const again = await clientOf(enterprise, 'consumer', second.port);
    await until(
      'the second fact has crossed',
      async () => (await fetchAll(again, 'plant-a', 'enterprise')).length === 2,
    );
    expect(await fetchAll(again, 'plant-a', 'enterprise')).toEqual(['a1', 'a2']);
    await until('both are normal again', () => bothAre(plant, 'normal'));
    const events = await eventsOf(plant);
    expect(new Set(events)).toEqual(new Set(['boundary.zone.autonomous', 'boundary.zone.connected']));
    // Two hand-offs, each away at the start and once more.
    expect(events).toHaveLength(8);
    // Facts and receipts on both sides.
    expect(
      await plant.rows(
        `select to_offset::int as "to" from boundary.receipts where buffer = 'store' order by 1`,
      ),
    ).toEqual([{ to: 1 }, { to: 2 }]);
  });

  test('BND-10: health and metrics of the API tell of a stream that does not cross; a node of another zone is not believed', async () => {
    const { plant, enterprise } = await pairedZones();
    const peerNode = await serveZone(enterprise);
    // The address of another zone: its node is not believed to be of the laboratory.
    const peers = {
      lab: {
        url: `https://localhost:${peerNode.port}`,
        mode: 'push',
        receiptKeys: [Buffer.alloc(32, 7).toString('base64')],
      },
    };
    const env = {
      TALLYMAN_PORT: '0',
      TALLYMAN_BOUNDARY_PEERS: JSON.stringify(peers),
      TALLYMAN_BOUNDARY_STALLED_AFTER_MS: '1000',
    };
    const { url, port } = await serveZone(plant, env, ['boundary', 'api']);
    const producer = await clientOf(plant, 'producer', port);
    await producer.appendFact(factOf('a1', 'plant-a', 'lab'));
    const health = async () =>
      (await fetch(`${url}/v1/health/ready`)).json() as Promise<{
        checks: Record<string, { status: string }>;
      }>;
    await until('it is stalled', async () => (await health()).checks.boundary?.status === 'down');
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain('tallyman_boundary_stalled{buffer="store",from="plant-a",to="lab"} 1');
    expect(metrics).toContain(
      'tallyman_boundary_mode{buffer="store",from="plant-a",to="lab",mode="refused"} 1',
    );
    expect(metrics).toMatch(/tallyman_boundary_certificate_expires_timestamp_seconds \d{10}/);
    expect(await eventsOf(plant)).toEqual(['boundary.stream.stalled']);
    expect(await plant.rows('select trouble from boundary.handoffs')).toEqual([
      { trouble: expect.stringContaining('zone/enterprise/peer, not a peer of zone "lab"') },
    ]);
  });

  test('BND-12: a certificate that is refused, or may not do this, and plain HTTP are audit events', async () => {
    const { plant, enterprise } = await pairedZones();
    const { port, stop } = await serveZone(plant);
    const stranger = await clientOf(enterprise, 'producer', port);
    const error = await stranger.appendFact(factOf('x', 'plant-a', 'enterprise')).catch(ConnectError.from);
    expect(error).toMatchObject({ code: Code.PermissionDenied });
    const other = await pairedZones();
    const unknown = await clientOf(other.plant, 'producer', port, plant.ca);
    await expect(unknown.appendFact(factOf('x', 'plant-a', 'enterprise'))).rejects.toMatchObject({
      code: Code.Unauthenticated,
    });
    const own = await clientOf(plant, 'producer', port);
    await expect(
      own.deliverFacts({ stream: { fromZone: 'enterprise', toZone: 'plant-a' } }),
    ).rejects.toMatchObject({ code: Code.PermissionDenied });
    // The first is written at once, the others are counted.
    for (let times = 0; times < 3; times += 1)
      expect((await fetch(`http://localhost:${port}/objects/b/k`)).status).toBe(400);
    await stop();
    const lines = await plant.rows(
      'select actor, action, outcome, status, code, resource, times from tallyman_server.audit_events order by id',
    );
    const plainHttp = {
      actor: expect.stringMatching(/127\.0\.0\.1|::1/),
      action: 'boundary.connect',
      outcome: 'refused',
      status: 401,
      code: 'PLAIN_HTTP',
      resource: expect.stringContaining('plain HTTP is refused'),
    };
    expect(lines).toEqual([
      {
        actor: 'spiffe://example/zone/enterprise/producer',
        action: 'boundary.append',
        outcome: 'refused',
        status: 403,
        code: 'NOT_ALLOWED',
        resource: expect.stringContaining('cannot speak for "plant-a"'),
        times: 1,
      },
      {
        actor: expect.stringMatching(/127\.0\.0\.1|::1/),
        action: 'boundary.connect',
        outcome: 'refused',
        status: 401,
        code: 'CERTIFICATE_REFUSED',
        resource: expect.stringContaining('is not accepted'),
        times: 1,
      },
      {
        actor: 'spiffe://example/zone/plant-a/producer',
        action: 'boundary.deliver',
        outcome: 'refused',
        status: 403,
        code: 'NOT_ALLOWED',
        resource: expect.stringContaining('only a peer may'),
        times: 1,
      },
      { ...plainHttp, times: 1 },
      { ...plainHttp, times: 2 },
    ]);
  });

  test('BND-12: certificates are replaced without a restart, for callers and for peers', async () => {
    const { plant, enterprise } = await pairedZones();
    const { port } = await serveZone(plant);
    const peerNode = await serveZone(enterprise);
    const producer = await clientOf(plant, 'producer', port);
    await producer.appendFact(factOf('a1', 'plant-a', 'enterprise'));
    const authority = await makeAuthority(plant.folder, 2);
    const made = await readFile(authority.cert, 'utf8');
    // First everybody knows the new authority, then the certificates change.
    const both = `${plant.ca}${made}`;
    const caFile = join(plant.folder, '..', 'ca.crt');
    await writeFile(caFile, both);
    for (const { folder, zone } of [plant, enterprise])
      await makeCertificate({
        authority,
        cert: join(folder, 'peer.crt'),
        key: join(folder, 'peer.key'),
        commonName: `${zone} peer`,
        uri: `spiffe://example/zone/${zone}/peer`,
        hosts: ['localhost', '127.0.0.1'],
        days: 2,
      });
    // A client that knows the new authority alone is answered once the node shows its new certificate.
    const isNew = async (place: Place, at: number): Promise<boolean> => {
      const client = await clientOf(place, 'consumer', at, made);
      return client.getFrontier({ stream: { fromZone: 'plant-a', toZone: 'enterprise' } }).then(
        () => true,
        () => false,
      );
    };
    await until('the plant shows its new certificate', () => isNew(plant, port));
    await until('the enterprise shows its new certificate', () => isNew(enterprise, peerNode.port));
    const renewed = await clientOf(plant, 'producer', port, both);
    await renewed.appendFact(factOf('a2', 'plant-a', 'enterprise'));
    const consumer = await clientOf(enterprise, 'consumer', peerNode.port, both);
    await until(
      'facts cross between the new certificates',
      async () => (await fetchAll(consumer, 'plant-a', 'enterprise')).length === 2,
    );
    // Now without the old authority: what is left of it counts no more.
    await writeFile(caFile, made);
    await until('the old authority is not known any more', async () => {
      const old = await clientOf(plant, 'producer', port, both);
      return old.appendFact(factOf('a3', 'plant-a', 'enterprise')).then(
        () => false,
        (error) => ConnectError.from(error).code === Code.Unauthenticated,
      );
    });
  });
});

test('BND-12: settings that do not fit are refused when the program starts', async () => {
  const { plant } = await pairedZones();
  expect(() =>
    loadConfig([boundaryApp], { env: { ...plant.env, TALLYMAN_BOUNDARY_TRUST_DOMAIN: 'A B' } }),
  ).toThrow('boundary.trustDomain');
});
