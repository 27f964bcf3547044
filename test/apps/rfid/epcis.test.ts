import { describe, expect, test } from 'vitest';
import {
  epcisDocument,
  type MovementRecord,
  type ObjectEvent,
  readMovements,
  toObjectEvent,
} from '../../../src/apps/rfid/epcis.ts';
import { wandering } from './replay-support.ts';
import { plant, read, tenantId, time } from './support.ts';

const movement: MovementRecord = {
  id: '7',
  tenantId: 'default',
  epcUri: 'urn:epc:id:grai:0614141.12345.400',
  deviceId: 'dock 1/ü',
  fromLocationId: '1',
  toLocationId: '2',
  eventTime: '2026-03-01T12:00:00.000001Z',
  recordTime: '2026-03-01T12:00:01.000000Z',
};

async function text(pieces: AsyncIterable<string>): Promise<string> {
  let all = '';
  for await (const piece of pieces) all += piece;
  return all;
}

describe('EPCIS export', () => {
  test('RFID-15: a movement is an ObjectEvent: what, when, where, why', () => {
    expect(toObjectEvent(movement)).toEqual({
      type: 'ObjectEvent',
      eventID: expect.stringMatching(
        /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      ),
      eventTime: '2026-03-01T12:00:00.000001Z',
      recordTime: '2026-03-01T12:00:01.000000Z',
      eventTimeZoneOffset: '+00:00',
      epcList: ['urn:epc:id:grai:0614141.12345.400'],
      action: 'OBSERVE',
      bizStep: 'arriving',
      disposition: 'in_progress',
      readPoint: { id: 'urn:tallyman:device:default:dock%201%2F%C3%BC' },
      bizLocation: { id: 'urn:tallyman:location:default:2' },
      sourceList: [{ type: 'location', source: 'urn:tallyman:location:default:1' }],
      destinationList: [{ type: 'location', destination: 'urn:tallyman:location:default:2' }],
      'tallyman:device': 'dock 1/ü',
    });
  });

  test('RFID-15: a first sighting comes from nowhere; places may be named as the partners name them', () => {
    const names = {
      location: (_: string, id: string) => `urn:epc:id:sgln:0614141.0000${id}.0`,
      device: (_: string, serial: string) => `https://example.org/readers/${encodeURIComponent(serial)}`,
    };
    const event = toObjectEvent({ ...movement, fromLocationId: null }, names);
    expect(event).not.toHaveProperty('sourceList');
    expect(event.bizLocation.id).toBe('urn:epc:id:sgln:0614141.00002.0');
  });

  test('RFID-15: the same movement has the same id whenever it is exported, and no other has it', () => {
    const id = (more: Partial<MovementRecord>) => toObjectEvent({ ...movement, ...more }).eventID;
    expect(id({ recordTime: '' })).toBe(id({}));
    expect(new Set([id({}), id({ id: '8' }), id({ tenantId: 'other' })]).size).toBe(3);
  });

  test('RFID-15: a document of all movements of a tenant in a range, page by page', async () => {
    const { processor, tallyman, at } = await plant(['A', 'B', 'C'], { movements: { windowMs: 0 } });
    await processor.processTagReads(wandering(100));
    await tallyman.database.query(
      `insert into rfid.movements (basket_id, to_location_id, event_timestamp, window_start, device_id, tenant_id)
       select basket_id, to_location_id, event_timestamp, window_start, device_id, 'other' from rfid.movements`,
    );
    const document = async (range: { from?: string; to?: string }): Promise<ObjectEvent[]> => {
      const pages = readMovements(tallyman.database, { tenantId, ...range }, 7);
      const parsed = JSON.parse(await text(epcisDocument(pages, { createdAt: new Date(0) })));
      expect({ ...parsed, epcisBody: null }).toEqual({
        '@context': [
          'https://ref.gs1.org/standards/epcis/2.0.0/epcis-context.jsonld',
          { tallyman: 'urn:tallyman:epcis:' },
        ],
        type: 'EPCISDocument',
        schemaVersion: '2.0',
        creationDate: '1970-01-01T00:00:00.000Z',
        epcisBody: null,
      });
      // In the order of their ids: those of one basket in the order of time, those of several as they were committed.
      const events: ObjectEvent[] = parsed.epcisBody.eventList;
      return events.toSorted((a, b) => (a.eventTime < b.eventTime ? -1 : 1));
    };
    const all = await document({});
    expect(all).toHaveLength(100);
    expect(new Set(all.map(({ eventID }) => eventID)).size).toBe(100);
    expect(all[10]).toMatchObject({
      eventTime: time(10),
      bizLocation: { id: `urn:tallyman:location:default:${at.B}` },
      sourceList: [{ source: `urn:tallyman:location:default:${at.A}` }],
    });
    const some = await document({ from: time(10), to: time(20) });
    expect(some.map(({ eventTime }) => eventTime)).toEqual(
      Array.from({ length: 10 }, (_, i) => time(10 + i)),
    );
    expect(await document({ from: time(1000) })).toEqual([]);
  });

  test('RFID-15: what is recorded while it is written is left for the next export', async () => {
    const { processor, tallyman } = await plant();
    await processor.processTagReads(wandering(5));
    let exported = 0;
    for await (const { deviceId } of readMovements(tallyman.database, { tenantId }, 2)) {
      exported += 1;
      const next = deviceId === 'A' ? 'B' : 'A';
      await processor.processTagReads([read(next, 1000 + exported)]);
      if (exported > 10) break;
    }
    expect(exported).toBe(5);
  });
});
