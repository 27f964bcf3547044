import { type Means, meansWith } from '../../../src/apps/passports/means.ts';
import { keyRing } from '../../../src/apps/passports/signing/keys.ts';
import { seededFresh } from '../../../src/apps/passports/work.ts';

/** 32 bytes of nothing: a key for tests alone. */
export const testKeys = keyRing({
  'passports.signingKey': Buffer.alloc(32, 7).toString('base64'),
  'passports.signingKeyId': 'test-1',
  'passports.publicKeys': null,
});

/** The same key after a rotation: `test-0` signed before it. */
export const keysAfterRotation = keyRing({
  'passports.signingKey': Buffer.alloc(32, 7).toString('base64'),
  'passports.signingKeyId': 'test-1',
  'passports.publicKeys': `test-0=${Buffer.alloc(32, 1).toString('base64')}`,
});

export const issuedAt = new Date('2027-02-18T00:00:00Z');

/** The same ids and salts in every run. */
export const testMeans = (more: Partial<Means> = {}): Means =>
  meansWith({ keys: testKeys, build: 'test-build', fresh: seededFresh('test'), ...more });
