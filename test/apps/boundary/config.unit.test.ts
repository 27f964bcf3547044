import { describe, expect, test } from 'vitest';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { boundaryKeys } from '../../../src/apps/boundary/config.ts';
import { onFullOf, settingsFrom } from '../../../src/apps/boundary/settings.ts';
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
const ruleWith = (changes: object): string =>
  JSON.stringify([{ event: 'rfid.movement', to: 'lab', predicate: 'moved_to', ...changes }]);
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

  test('BND-16: rules name known zones, and what a fact needs', () => {
    const config = load({
      ...whole,
      TALLYMAN_BOUNDARY_ZONES: 'lab',
      TALLYMAN_BOUNDARY_EVENTS_AS_FACTS: ruleWith({
        event: 'rfid.*',
        subject: 'tag:{payload.epc}',
        labels: { a: 'b' },
      }),
      TALLYMAN_BOUNDARY_FACTS_AS_EVENTS: '[{"predicate":"moved_to","from":"lab"},{}]',
    });
    expect(settingsFrom(settingsOf(boundaryKeys, config))).toMatchObject({
      eventRules: [{ event: 'rfid.*', to: 'lab', subject: 'tag:{payload.epc}', labels: { a: 'b' } }],
      receivedRules: [{ predicate: 'moved_to', from: 'lab' }, {}],
    });
  });

  test('BND-9, BND-11: one-way mode needs no certificates; a peer may say what its stream does when it is full', () => {
    const config = load({
      TALLYMAN_BOUNDARY_ZONE: 'plant-a',
      TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: 'r',
      TALLYMAN_BOUNDARY_LIMITS_ON_FULL: 'drop-oldest',
      TALLYMAN_BOUNDARY_ZONES: 'lab',
      TALLYMAN_BOUNDARY_PEERS: JSON.stringify({
        enterprise: { mode: 'one-way', outbox: 'o', onFull: 'refuse' },
      }),
    });
    const settings = settingsFrom(settingsOf(boundaryKeys, config));
    if (!settings) throw new Error('no zone');
    expect(settings.peers).toMatchObject([{ zone: 'enterprise', ways: ['one-way'], outbox: 'o' }]);
    expect(onFullOf(settings, 'enterprise')).toBe('refuse');
    expect(onFullOf(settings, 'lab')).toBe('drop-oldest');
    expect(settings.pace).toEqual({});
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
    [peers({ mode: 'both' }), 'mode of a peer must be push, pull, a list of both, or one-way'],
    [
      peers({ mode: 'one-way' }),
      'boundary.peers.enterprise.mode is one-way: set boundary.peers.enterprise.outbox',
    ],
    [peers({ mode: ['push', 'one-way'], outbox: 'o' }), 'names one-way and another way'],
    [peers({ mode: 'one-way', inbox: 'i' }), 'boundary.peers.enterprise.receiptKeys is empty: files in'],
    [peers({ mode: 'one-way', outbox: 'o', url: 'https://e.example' }), 'in one-way mode nobody connects'],
    [peers({ mode: 'one-way', outbox: 'o', inbox: 'o' }), 'are the same folder'],
    [peers({ outbox: 'o', receiptKeys: [receiptKey] }), 'are for boundary.peers.enterprise.mode one-way'],
    [
      peers({ mode: 'one-way', outbox: 'o', resend: { everyMs: 5000, windowMs: 1000 } }),
      'boundary.peers.enterprise.resend.windowMs must not be below',
    ],
    [peers({ onFull: 'panic', receiptKeys: [receiptKey] }), 'expected refuse or drop-oldest'],
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
    ...(
      [
        [
          { event: 'boundary.*' },
          'boundary.eventsAsFacts[0].event is "boundary.*", which names events of the boundary itself',
        ],
        [{ event: '*' }, 'boundary.eventsAsFacts[0].event is "*"'],
        [{ event: 'rfid movement' }, 'event of a rule must be a type of event'],
        [{ to: 'moon' }, 'boundary.eventsAsFacts[0].to is "moon", which is neither in boundary.peers'],
        [{ to: 'plant-a' }, 'boundary.eventsAsFacts[0].to is "plant-a"'],
        [{ predicate: 'Moved To' }, 'predicate of a rule must be lower_snake_case'],
        [{ subject: 'tag:{epc}' }, 'subject of a rule may name'],
        [{ subject: '{payload.epc}' }, 'subject of a rule must be kind:id'],
        [{ labels: { '': 'x' } }, 'envelope.labels'],
        [{ filter: {} }, 'boundary.eventsAsFacts'],
      ] as const
    ).map(([changes, says]): [Record<string, string>, string] => [
      { ...whole, TALLYMAN_BOUNDARY_ZONES: 'lab', TALLYMAN_BOUNDARY_EVENTS_AS_FACTS: ruleWith(changes) },
      says,
    ]),
    [
      { ...whole, TALLYMAN_BOUNDARY_FACTS_AS_EVENTS: '[{"from":"moon"}]' },
      'boundary.factsAsEvents[0].from is "moon"',
    ],
    [{ ...whole, TALLYMAN_BOUNDARY_FACTS_AS_EVENTS: '{}' }, 'expected a list of rules'],
  ])('%j is refused with the name of the key', (env, says) => {
    expect(() => load(env as Record<string, string>)).toThrow(says);
  });
});
