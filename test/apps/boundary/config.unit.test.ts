import { describe, expect, test } from 'vitest';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { boundaryKeys } from '../../../src/apps/boundary/config.ts';
import { settingsFrom } from '../../../src/apps/boundary/settings.ts';
import { settingsOf } from '../../../src/host/app.ts';
import { loadConfig } from '../../../src/host/config.ts';

const receiptKey = Buffer.alloc(32, 1).toString('base64');
const tls = {
  TALLYMAN_BOUNDARY_TLS_CERT_FILE: 'a.crt',
  TALLYMAN_BOUNDARY_TLS_KEY_FILE: 'a.key',
  TALLYMAN_BOUNDARY_TLS_CA_FILE: 'ca.crt',
  TALLYMAN_BOUNDARY_TRUST_DOMAIN: 'example',
};
const whole = { TALLYMAN_BOUNDARY_ZONE: 'plant-a', TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: 'r.key', ...tls };
const load = (env: Record<string, string>) => loadConfig([boundaryApp], { env });
const peers = (peer: object, zone = 'enterprise') => ({
  ...whole,
  TALLYMAN_BOUNDARY_PEERS: JSON.stringify({ [zone]: peer }),
});

describe('configuration of a node', () => {
  test('nothing is needed while there is no zone, and nothing is checked', () => {
    expect(settingsFrom(settingsOf(boundaryKeys, load({})))).toBeUndefined();
    expect(() => load({ TALLYMAN_BOUNDARY_HOST: '0.0.0.0' })).not.toThrow();
  });

  test('zones are this one, its peers, and those that are named; producers send to all others', () => {
    const config = load({
      ...peers({ url: 'https://e.example:7443', mode: 'push', receiptKeys: [receiptKey] }),
      TALLYMAN_BOUNDARY_ZONES: 'lab, plant-b',
    });
    const settings = settingsFrom(settingsOf(boundaryKeys, config));
    expect(settings?.zones.all).toEqual(['plant-a', 'enterprise', 'lab', 'plant-b']);
    expect(settings?.sendsTo).toEqual(['enterprise', 'lab', 'plant-b']);
    expect(settings?.peers).toMatchObject([
      { zone: 'enterprise', ways: ['push'], url: 'https://e.example:7443' },
    ]);
    expect(settings?.peers[0]?.receiptKeys[0]?.asymmetricKeyType).toBe('ed25519');
  });

  test.each([
    [{ TALLYMAN_BOUNDARY_ZONE: 'Plant A' }, 'boundary.zone'],
    [{ TALLYMAN_BOUNDARY_ZONE: 'plant-a' }, 'boundary.receiptKeyFile is not set'],
    [{ ...whole, TALLYMAN_BOUNDARY_TRUST_DOMAIN: '' }, 'boundary.trustDomain is not set'],
    [{ ...whole, TALLYMAN_BOUNDARY_TLS_KEY_FILE: '' }, 'boundary.tls.keyFile is not set'],
    [
      {
        TALLYMAN_BOUNDARY_ZONE: 'plant-a',
        TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: 'r',
        TALLYMAN_BOUNDARY_HOST: '0.0.0.0',
      },
      'boundary.listen.host is 0.0.0.0',
    ],
    [{ ...whole, TALLYMAN_BOUNDARY_LIMITS_REFUSE_AT: '0.5' }, 'boundary.limits.acceptAt (0.7) must be below'],
    [{ ...whole, TALLYMAN_BOUNDARY_SENDS_TO: 'moon' }, 'boundary.sendsTo names "moon"'],
    [peers({ mode: 'push', receiptKeys: [receiptKey] }), 'boundary.peers.enterprise.url is not set'],
    [
      peers({ url: 'http://e.example', mode: 'push' }),
      'boundary.peers (from TALLYMAN_BOUNDARY_PEERS): url of a peer',
    ],
    [peers({ mode: 'both' }), 'mode of a peer must be push, pull, or a list of both'],
    [peers({ receiptKeys: ['short'] }), 'receiptKeys of a peer must be 32 bytes'],
    [peers({}), 'boundary.peers.enterprise.receiptKeys is empty'],
    [peers({ ulr: '' }), 'boundary.peers'],
    [peers({ receiptKeys: [receiptKey] }, 'plant-a'), 'boundary.peers.plant-a is the zone of this node'],
    [{ ...whole, TALLYMAN_BOUNDARY_PEERS: 'enterprise' }, 'boundary.peers (from TALLYMAN_BOUNDARY_PEERS)'],
    [
      {
        TALLYMAN_BOUNDARY_ZONE: 'plant-a',
        TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: 'r',
        TALLYMAN_BOUNDARY_PEERS: JSON.stringify({ enterprise: { receiptKeys: [receiptKey] } }),
      },
      'boundary.peers needs certificates',
    ],
  ])('%j is refused with the name of the key', (env, says) => {
    expect(() => load(env as Record<string, string>)).toThrow(says);
  });
});
