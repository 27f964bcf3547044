import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeEpc } from '../../../src/apps/rfid/epc.ts';

describe('EPC', () => {
  test.each([
    ['3074257BF7194E4000001A85', 'urn:epc:id:sgtin:0614141.812345.6789'],
    ['3314257BF40C0E4000000190', 'urn:epc:id:grai:0614141.12345.400'],
    ['3174257BF4499602D2000000', 'urn:epc:id:sscc:0614141.1234567890'],
    ['3374257BF40C0E4000000190', 'urn:epc:id:grai:0614141.12345.400'],
    ['3474257BF40000000000162E', 'urn:epc:id:giai:0614141.5678'],
  ])('RFID-5: %s is %s', (hex, uri) => {
    expect(decodeEpc(hex)).toEqual({ hex, uri });
    expect(decodeEpc(` ${hex.toLowerCase()} `)).toEqual({ hex, uri });
  });

  test.each([
    ['', /0 hex digits/],
    ['3074257BF7194E4000001A8', /23 hex digits/],
    ['3074257BF7194E4000001A8500', /26 hex digits/],
    ['3074257BF7194E4000001A8G', /not hexadecimal/],
    ['E2801160600002054D7A1B3C', /header E2 is none of 30 /],
    ['000000000000000000000000', /header 00/],
    ['307C257BF7194E4000001A85', /partition is 7/],
    // Partition 6: a company prefix of six digits in twenty bits, which hold up to 1048575.
    ['301BD0900000000000000000', /company prefix 1000000 has more than the 6 digits/],
    ['330072FA646850C000000005', /reference 3 has more than the 0 digits/],
    ['3174257BF4499602D2000001', /last 24 bits are reserved/],
  ])('RFID-5: %s is refused with a reason', (hex, reason) => {
    expect(() => decodeEpc(hex)).toThrow(reason);
    expect(() => decodeEpc(hex)).toThrow(expect.objectContaining({ code: 'BAD_EPC' }));
  });

  /** Lengths from the standard's tables, written down once more. */
  const companyBits = [40, 37, 34, 30, 27, 24, 20];
  const schemes = [
    { name: 'sgtin', header: 0x30n, shared: 44, serial: 38, digits: 13 },
    { name: 'sscc', header: 0x31n, shared: 58, serial: 0, digits: 17 },
    { name: 'grai', header: 0x33n, shared: 44, serial: 38, digits: 12 },
    { name: 'giai', header: 0x34n, shared: 82, serial: 0, digits: null },
  ] as const;

  test('RFID-5: what was encoded after the tables is decoded, for every scheme and partition', () => {
    const digits = (length: number) =>
      fc
        .array(fc.integer({ min: 0, max: 9 }), { minLength: length, maxLength: length })
        .map((d) => d.join(''));
    const given = fc
      .record({ scheme: fc.constantFrom(...schemes), partition: fc.integer({ min: 0, max: 6 }) })
      .chain(({ scheme, partition }) =>
        fc.record({
          scheme: fc.constant(scheme),
          partition: fc.constant(partition),
          filter: fc.integer({ min: 0, max: 7 }),
          company: digits(12 - partition),
          item:
            scheme.digits === null
              ? fc.bigInt({ min: 0n, max: 10n ** 12n }).map(String)
              : digits(scheme.digits - (12 - partition)),
          serial: fc.bigInt({ min: 0n, max: 2n ** 38n - 1n }),
        }),
      );
    fc.assert(
      fc.property(given, ({ scheme, partition, filter, company, item, serial }) => {
        const itemBits = scheme.shared - (companyBits[partition] ?? 0);
        let bits = (scheme.header << 6n) | (BigInt(filter) << 3n) | BigInt(partition);
        bits = (bits << BigInt(companyBits[partition] ?? 0)) | BigInt(company);
        bits = (bits << BigInt(itemBits)) | BigInt(item === '' ? 0 : item);
        const used = 14 + scheme.shared + scheme.serial;
        bits = ((bits << BigInt(scheme.serial)) | (scheme.serial === 0 ? 0n : serial)) << BigInt(96 - used);
        const parts = scheme.serial === 0 ? [company, item] : [company, item, serial];
        const hex = bits.toString(16).toUpperCase().padStart(24, '0');
        expect(decodeEpc(hex).uri).toBe(`urn:epc:id:${scheme.name}:${parts.join('.')}`);
      }),
      { numRuns: 500 },
    );
  });

  test('RFID-5: any 24 digits are decoded or refused, never misread for want of a check', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 12, maxLength: 12 }), (bytes) => {
        bytes[0] = [0x30, 0x31, 0x33, 0x34][(bytes[0] ?? 0) % 4] ?? 0;
        try {
          expect(decodeEpc(Buffer.from(bytes).toString('hex')).uri).toMatch(
            /^urn:epc:id:(sgtin|grai):\d{6,12}\.\d{0,7}\.\d+$|^urn:epc:id:(sscc|giai):\d{6,12}\.\d+$/,
          );
        } catch (error) {
          expect(error).toMatchObject({ code: 'BAD_EPC' });
        }
      }),
    );
  });
});
