import { createHash, createPublicKey, verify as verifyBytes } from 'node:crypto';
import canonicalize from 'canonicalize';
import { compactVerify, importJWK } from 'jose';
import { expect, test } from 'vitest';
import { type Reader, readerPoints, sha256Hex } from '../../../../src/apps/passports/compile/index.ts';
import { asJwt, credentialOf, withDataIntegrity } from '../../../../src/apps/passports/export/credential.ts';
import { base58, didDocument, didOf } from '../../../../src/apps/passports/export/did.ts';
import {
  type Envelope,
  type EnvelopeEvent,
  envelopeOf,
  verifyEnvelope,
} from '../../../../src/apps/passports/export/envelope.ts';
import { checkEvents, mostExportedEvents } from '../../../../src/apps/passports/export/events.ts';
import { disclose, type IndividualRecord } from '../../../../src/apps/passports/page/disclosure.ts';
import { viewOf } from '../../../../src/apps/passports/page/view.ts';
import {
  disclosedSample,
  individualRecord,
  privateKey,
  publicKey,
  signBytes,
  sourceWith,
} from '../page/sample.ts';

const signer = { keyId: 'key-1', sign: signBytes };
const readers: readonly Reader[] = ['public', 'legitimate_interest', 'authority'];
const jwk = { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(publicKey).toString('base64url') };

test('BPC-16: jose verifies the vc+jwt, and refuses a changed one', async () => {
  const credential = credentialOf(disclosedSample('public'));
  const jwt = asJwt(credential, signer);
  const key = await importJWK(jwk, 'EdDSA');
  const { payload, protectedHeader } = await compactVerify(jwt, key);
  expect(protectedHeader).toMatchObject({ typ: 'vc+jwt', kid: 'did:web:passports.example#key-1' });
  expect(JSON.parse(Buffer.from(payload).toString())).toEqual(credential);
  const [head, , signature] = jwt.split('.');
  const other = Buffer.from(JSON.stringify({ ...credential, validFrom: '2026-01-01T00:00:00Z' }));
  await expect(compactVerify(`${head}.${other.toString('base64url')}.${signature}`, key)).rejects.toThrow();
});

test('BPC-16: the eddsa-jcs-2022 proof holds by an RFC 8785 library and Node’s Ed25519', () => {
  const { proof, ...credential } = withDataIntegrity(credentialOf(disclosedSample('public')), signer);
  const { proofValue, ...options } = proof as { readonly proofValue: string };
  const hash = (json: unknown) =>
    createHash('sha256')
      .update(canonicalize(json) ?? '')
      .digest();
  const bytes = Buffer.concat([hash(options), hash(credential)]);
  expect(verifyBytes(null, bytes, createPublicKey(privateKey), unbase58(proofValue.slice(1)))).toBe(true);
  bytes[0] = (bytes[0] ?? 0) ^ 1;
  expect(verifyBytes(null, bytes, createPublicKey(privateKey), unbase58(proofValue.slice(1)))).toBe(false);
  expect(didDocument('https://passports.example', { 'key-1': publicKey })).toMatchObject({
    id: 'did:web:passports.example',
    assertionMethod: ['did:web:passports.example#key-1'],
  });
  expect(didOf('http://localhost:8080')).toBe('did:web:localhost%3A8080');
});

function unbase58(text: string): Buffer {
  const letters = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
  let number = 0n;
  for (const letter of text) number = number * 58n + BigInt(letters.indexOf(letter));
  return Buffer.from(number.toString(16).padStart(128, '0'), 'hex');
}

test('base 58 keeps leading zeros', () => {
  expect(base58(Uint8Array.of(0, 0, 1))).toBe('112');
  expect(base58(new TextEncoder().encode('Hello World!'))).toBe('2NEpo7TZRRrLZSi2U');
});

test('BPC-12: credentials and files for a reader have nothing of points that the reader may not see', () => {
  const secrets = { 2: 'dismantling.pdf', 3: 'pack-100-2026.pdf', 4: '"annualCycles"' } as const;
  for (const reader of readers) {
    const disclosed = disclosedSample(reader);
    const texts = [JSON.stringify(credentialOf(disclosed)), JSON.stringify(envelopeOf(disclosed))];
    for (const [point, secret] of Object.entries(secrets))
      if (!readerPoints[reader].some((each) => String(each) === point))
        for (const text of texts) expect(text, `${reader} and ${secret}`).not.toContain(secret);
  }
});

test.each(readers)('BPC-15: the file for %s verifies offline, with its code', (reader) => {
  const disclosed = disclosedSample(reader);
  const report = verifyEnvelope(JSON.stringify(envelopeOf(disclosed)), {
    keys: { 'key-1': publicKey },
    qr: viewOf(disclosed).documentCode,
  });
  expect(report).toMatchObject({ ok: true, keysFrom: 'reader', mismatches: [] });
  expect(report.checked).toContain('version: names the receipt of the model');
});

test('BPC-15: a file that was changed, of another model, without its model or no file at all is named', () => {
  const envelope = envelopeOf(disclosedSample('public'));
  const reportOf = (change: object) => verifyEnvelope(JSON.stringify({ ...envelope, ...change }));
  const payload = envelope.version.payload.replace('Sample City', 'Simple City');
  expect(reportOf({ version: { ...envelope.version, payload } }).mismatches[0]).toMatchObject({
    part: 'payload',
  });
  expect(reportOf({ model: null }).mismatches).toMatchObject([{ part: 'model' }]);
  const other = envelopeOf(disclose(sourceWith({}, { issuedAt: '2027-04-01T00:00:00Z' }), 'public')).model;
  expect(reportOf({ model: other }).mismatches).toMatchObject([{ part: 'model' }]);
  expect(reportOf({ keys: {} }).mismatches[0]).toMatchObject({ part: 'key' });
  expect(verifyEnvelope('no JSON')).toMatchObject({ ok: false, mismatches: [{ part: 'file' }] });
  expect(verifyEnvelope('{"format":"x"}')).toMatchObject({ ok: false, mismatches: [{ part: 'file' }] });
});

test('BPC-11, BPC-15: individual data go with the file of who may see them: signed, of this battery, in their order', () => {
  const first = individualRecord(1, 'fullCycles', { value: 100 });
  const second = individualRecord(2, 'fullCycles', { value: 200 }, sha256Hex(Buffer.from(first.content)));
  const disclosed = disclosedSample('legitimate_interest', { individual: [second, first] });
  const envelope = envelopeOf(disclosed);
  const reportOf = (events: Envelope['events']) =>
    verifyEnvelope(JSON.stringify({ ...envelope, events })).mismatches.map(({ message }) => message);
  expect(verifyEnvelope(JSON.stringify(envelope)).checked).toContain('events: 2 signed, in their order');
  expect(envelopeOf(disclosedSample('public')).events).toEqual([]);
  const [one, two] = envelope.events as [EnvelopeEvent, EnvelopeEvent];
  const lowered = { ...two, content: two.content.replace('200', '20') };
  expect(reportOf([one, lowered])).toEqual(['events /events/1: the signature of event 2 does not fit']);
  expect(reportOf([two, one])).toEqual(['events /events/1: event 1 is out of order']);
  const unchained = envelopeOf(
    disclosedSample('legitimate_interest', {
      individual: [first, individualRecord(2, 'fullCycles', { value: 5 })],
    }),
  ).events;
  expect(reportOf(unchained)).toEqual(['events /events/1: event 2 does not follow the event before it']);
  expect(reportOf([{ ...one, signing_key: 'x' }])).toEqual(['events /events/0: there is no public key "x"']);
  expect(reportOf([{ ...one, content: '{}' }])).toEqual(['events /events/0: is no event of a battery']);
  const foreign = {
    ...one,
    content: one.content.replace(/"passport_id":"[^"]*"/, '"passport_id":"another"'),
  };
  expect(reportOf([foreign])).toEqual(['events /events/0: belongs to another passport']);
});

/** Signed events 1 to `count` of the sample battery, each naming the one before it. */
function chain(count: number): readonly IndividualRecord[] {
  const records: IndividualRecord[] = [];
  for (let seq = 1; seq <= count; seq += 1) {
    const previous = records.at(-1);
    const hash = previous ? sha256Hex(Buffer.from(previous.content)) : null;
    records.push(individualRecord(seq, 'fullCycles', { value: seq * 100 }, hash));
  }
  return records;
}

test('BPC-11, BPC-15: verify names the event that was changed, whichever bit, and the ones that are missing or moved', () => {
  const envelope = envelopeOf(disclosedSample('legitimate_interest', { individual: [...chain(5)] }));
  // All that verify does about events; the other parts are checked above.
  const reportOf = (events: readonly EnvelopeEvent[]) =>
    checkEvents({ ...envelope, events: [...events] }, { 'key-1': publicKey }).mismatches.map(
      ({ message }) => message,
    );
  const all = envelope.events;
  expect(reportOf(all)).toEqual([]);

  // One bit, all along each field of the third event: that event is named, and no other.
  const third = all[2] as EnvelopeEvent;
  for (const field of ['content', 'signing_key', 'signature'] as const)
    for (let at = 0; at < third[field].length; at += 3) {
      const letter = String.fromCharCode(third[field].charCodeAt(at) ^ 1);
      const damaged = { ...third, [field]: third[field].slice(0, at) + letter + third[field].slice(at + 1) };
      const said = reportOf(all.slice(0, 4).with(2, damaged));
      expect(said, `${field} at ${at}`).toEqual([expect.stringMatching(/^events \/events\/2: /)]);
    }

  expect(reportOf(all.toSpliced(2, 1))).toEqual(['events: event 3 is missing']);
  expect(reportOf(all.toSpliced(1, 3))).toEqual(['events: events 2 to 4 are missing']);
  expect(reportOf(all.slice(2))).toEqual(['events: events 1 to 2 are missing']);
  const [one, two, , four, five] = all as [
    EnvelopeEvent,
    EnvelopeEvent,
    EnvelopeEvent,
    EnvelopeEvent,
    EnvelopeEvent,
  ];
  expect(reportOf([one, two, four, third, five])).toEqual(['events /events/3: event 3 is out of order']);
  expect(reportOf([one, two, third, third, four, five])).toEqual([
    'events /events/3: event 3 is out of order',
  ]);
  // Changed and missing at once: both are named.
  const damaged = { ...two, content: two.content.replace('200', '201') };
  expect(reportOf([one, damaged, four, five])).toEqual([
    'events /events/1: the signature of event 2 does not fit',
    'events: event 3 is missing',
  ]);

  // A battery with more events than a file takes: the newest without a gap, and a shorter list shows.
  const many = chain(mostExportedEvents + 3).slice(-mostExportedEvents);
  const long = envelopeOf(disclosedSample('legitimate_interest', { individual: many })).events;
  expect(reportOf(long)).toEqual([]);
  expect(reportOf(long.toSpliced(50, 1))).toEqual([
    'events: events 1 to 3 are missing',
    'events: event 54 is missing',
  ]);
});
