import { expect, onTestFinished, test } from 'vitest';
import { changeLocation } from '../../../src/apps/iot/places.ts';
import { epcisExport } from '../../../src/apps/rfid/epcis-export.ts';
import { furnish, server } from '../../server/support.ts';
import { until } from '../../support/engine.ts';
import { type Plant, plant, read, tag, tenantId } from './support.ts';

interface Document {
  readonly '@context': unknown;
  readonly type: string;
  readonly schemaVersion: string;
  readonly creationDate: string;
  readonly epcisBody: { readonly eventList: readonly Record<string, unknown>[] };
  readonly 'tallyman:nextCursor': string;
}

async function exported(it: Plant, range: Parameters<typeof epcisExport>[2] = {}): Promise<Document> {
  let text = '';
  for await (const piece of await epcisExport(it.tallyman.database, tenantId, range)) text += piece;
  return JSON.parse(text);
}

/** One movement each, of so many baskets. */
const seen = (it: Plant, from: number, count: number) =>
  it.processor.processTagReads(
    Array.from({ length: count }, (_, i) => read('A', from + i, { epc: tag(from + i) })),
  );
const tagsOf = ({ epcisBody }: Document) => epcisBody.eventList.flatMap(({ epcList }) => epcList as string[]);

test('RFID-15: all movements are exported, beyond any page; the next document begins where this one ended', async () => {
  const it = await plant();
  await seen(it, 1, 2500);
  const all = await exported(it);
  expect(new Set(tagsOf(all)).size).toBe(2500);
  const first = await exported(it, { limit: 1200 });
  const second = await exported(it, { limit: 1200, cursor: first['tallyman:nextCursor'] });
  const third = await exported(it, { cursor: second['tallyman:nextCursor'] });
  expect([first, second, third].flatMap(tagsOf)).toEqual(tagsOf(all));
  const nothing = await exported(it, { cursor: third['tallyman:nextCursor'] });
  expect(tagsOf(nothing)).toEqual([]);
  expect(nothing['tallyman:nextCursor']).toBe(third['tallyman:nextCursor']);
  await seen(it, 3001, 3);
  expect(tagsOf(await exported(it, { cursor: nothing['tallyman:nextCursor'] }))).toHaveLength(3);
});

test('RFID-15: a movement that commits late, with a lower id, is in the next document and not lost', async () => {
  const it = await plant();
  const slow = await it.tallyman.database.dedicated('slow writer');
  onTestFinished(() => slow.end());
  await slow.query('begin');
  const batch = await it.processor.examine([read('A', 1, { epc: tag(1) })]);
  await it.processor.processWithin(slow, batch);
  await seen(it, 2, 1);
  // It has the higher id and is there; the lower one is not yet.
  let ended = false;
  const exporting = exported(it).then((document) => {
    ended = true;
    return document;
  });
  await until('the export waits', async () => {
    const found = await it.rows(
      `select 1 from pg_locks where relation = 'rfid.baskets'::regclass and granted`,
    );
    return found.length > 0;
  });
  expect(ended).toBe(false);
  await slow.query('commit');
  const document = await exporting;
  expect(tagsOf(document)).toHaveLength(2);
  expect(tagsOf(await exported(it, { cursor: document['tallyman:nextCursor'] }))).toEqual([]);
});

test('RFID-15: events hold what EPCIS 2.0 demands, and name places by their SGLN', async () => {
  const it = await plant();
  await it.processor.processTagReads([read('A', 0), read('B', 10)]);
  const a = 'urn:epc:id:sgln:0614141.00777.0';
  await changeLocation(it.tallyman.database, tenantId, it.at.A ?? '', { sgln: a });
  const document = await exported(it);
  expect(document).toMatchObject({ type: 'EPCISDocument', schemaVersion: '2.0' });
  expect(document['@context']).toContain('https://ref.gs1.org/standards/epcis/2.0.0/epcis-context.jsonld');
  expect(Number.isNaN(Date.parse(document.creationDate))).toBe(false);
  const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  const uri = expect.stringMatching(/^(urn:[a-z0-9][a-z0-9-]+:|https?:\/\/)\S+$/);
  for (const event of document.epcisBody.eventList)
    expect(event).toEqual({
      type: 'ObjectEvent',
      eventID: expect.stringMatching(/^urn:uuid:/),
      eventTime: time,
      recordTime: time,
      eventTimeZoneOffset: expect.stringMatching(/^[+-]\d\d:\d\d$/),
      epcList: [uri],
      action: 'OBSERVE',
      bizStep: 'arriving',
      disposition: 'in_progress',
      readPoint: { id: uri },
      bizLocation: { id: uri },
      ...(event.sourceList !== undefined && { sourceList: [{ type: 'location', source: uri }] }),
      destinationList: [{ type: 'location', destination: uri }],
      'tallyman:device': expect.any(String),
    });
  expect(document.epcisBody.eventList).toMatchObject([
    { readPoint: { id: a }, bizLocation: { id: a }, destinationList: [{ destination: a }] },
    { sourceList: [{ source: a }], bizLocation: { id: `urn:tallyman:location:default:${it.at.B}` } },
  ]);
});

test('RFID-15: the API streams it as application/ld+json, the movements of one tenant', async () => {
  const it = await server();
  await furnish(it, await it.as('admin'));
  const of = async (tenant: string) => (await it.as('auditor', tenant))('GET', '/v1/movements/epcis');
  const { status, headers, body } = await of('default');
  expect(status).toBe(200);
  expect(headers.get('content-type')).toContain('application/ld+json');
  expect(headers.get('transfer-encoding')).toBe('chunked');
  expect(body.epcisBody.eventList).toHaveLength(1);
  expect((await of('other')).body.epcisBody.eventList).toEqual([]);
});

interface Told {
  readonly eventID: string;
  readonly eventTime: string;
  readonly sourceList?: readonly { readonly source: string }[];
  readonly destinationList: readonly { readonly destination: string }[];
  readonly errorDeclaration?: { readonly reason: string; readonly correctiveEventIDs?: readonly string[] };
}

/** What a partner believes who follows the standard: what was declared wrong is out. */
function believed(documents: readonly Document[]): string[] {
  const events = documents.flatMap(({ epcisBody }) => epcisBody.eventList as unknown as Told[]);
  const wrong = new Set(events.filter((one) => one.errorDeclaration).map(({ eventID }) => eventID));
  return events
    .filter((one) => !one.errorDeclaration && !wrong.has(one.eventID))
    .map((one) => routeOf(one))
    .toSorted();
}

const routeOf = ({ eventTime, sourceList, destinationList }: Told): string =>
  `${eventTime} ${sourceList?.[0]?.source.split(':').at(-1) ?? ''}>${destinationList[0]?.destination.split(':').at(-1)}`;

const books = async ({ rows }: Plant): Promise<string[]> =>
  (
    await rows<{ at: string; from: string | null; to: string }>(
      `select to_char(event_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
              from_location_id as from, to_location_id as to from rfid.movements`,
    )
  )
    .map(({ at, from, to }) => `${at} ${from ?? ''}>${to}`)
    .toSorted();

test('RFID-15: what a late read makes wrong is declared, with what is right instead', async () => {
  const it = await plant(['A', 'B', 'C']);
  await it.processor.processTagReads([read('A', 0), read('B', 600)]);
  const first = await exported(it);
  const [, moved] = first.epcisBody.eventList as unknown as Told[];
  // The basket was at C between: it came to B from there.
  await it.processor.processTagReads([read('C', 300)]);
  const second = await exported(it, { cursor: first['tallyman:nextCursor'] });
  expect(await books(it)).toHaveLength(3);
  expect(believed([first, second])).toEqual(await books(it));
  const declared = second.epcisBody.eventList.find(
    (one) => one.errorDeclaration !== undefined,
  ) as unknown as Told;
  const { recordTime, errorDeclaration, ...rest } = declared as Told & { recordTime: string };
  expect(rest).toEqual({ ...moved, recordTime: undefined });
  expect(errorDeclaration).toEqual({
    declarationTime: recordTime,
    reason: 'incorrect_data',
    correctiveEventIDs: [expect.stringMatching(/^urn:uuid:/)],
  });
  expect(second.epcisBody.eventList).toContainEqual(
    expect.objectContaining({
      eventID: errorDeclaration?.correctiveEventIDs?.[0],
      eventTime: moved?.eventTime,
    }),
  );
  expect((await exported(it, { cursor: second['tallyman:nextCursor'] })).epcisBody.eventList).toEqual([]);
});

test('RFID-15: a movement that has not been is declared as such', async () => {
  const it = await plant(['A', 'B']);
  await it.processor.processTagReads([read('A', 0), read('B', 600)]);
  const first = await exported(it);
  // It was at B from the start on, so the read at 600 moved nothing.
  await it.processor.processTagReads([read('B', 10)]);
  const second = await exported(it, { cursor: first['tallyman:nextCursor'] });
  expect(believed([first, second])).toEqual(await books(it));
  expect(
    (second.epcisBody.eventList as unknown as Told[]).map(({ errorDeclaration: error }) => error?.reason),
  ).toContain('did_not_occur');
});

test('RFID-15: reads in any order, documents cut anywhere: whoever follows them has the books', async () => {
  const doors = ['A', 'B', 'C', 'D'];
  const it = await plant(doors);
  // A fixed disorder of 120 reads of 3 baskets over four hours, in batches of 5.
  const reads = Array.from({ length: 120 }, (_, i) => {
    const n = (i * 73 + 11) % 120;
    return read(doors[(n * n + (n >> 2)) % 4] as string, n * 120, { epc: tag(n % 3) });
  });
  const followed: Document[] = [];
  const follow = async (limit?: number) => {
    const cursor = followed.at(-1)?.['tallyman:nextCursor'] ?? '0';
    followed.push(await exported(it, { cursor, ...(limit !== undefined && { limit }) }));
  };
  for (let i = 0; i < reads.length; i += 5) {
    await it.processor.processTagReads(reads.slice(i, i + 5));
    if (i % 15 === 0) await follow(7);
  }
  await follow();
  const expected = await books(it);
  expect(believed(followed)).toEqual(expected);
  // From the start on, in one piece, it says the same.
  expect(believed([await exported(it)])).toEqual(expected);
  const [{ corrections } = { corrections: 0 }] = await it.rows<{ corrections: number }>(
    'select count(*)::int as corrections from rfid.movement_corrections',
  );
  expect(corrections).toBeGreaterThan(10);
  const ids = followed.flatMap(({ epcisBody }) => epcisBody.eventList as unknown as Told[]);
  const events = ids.filter((one) => !one.errorDeclaration).map(({ eventID }) => eventID);
  expect(new Set(events).size).toBe(events.length);
});
