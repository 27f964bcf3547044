import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { iotComponent, putDevice, putLocation } from '../../../../src/apps/iot/index.ts';
import { rfidComponent } from '../../../../src/apps/rfid/index.ts';
import {
  type RunningIntake,
  readsTopic,
  registerDoors,
  startIntake,
  unreadableKind,
} from '../../../../src/apps/rfid/intake/index.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { driveReaders } from '../../../../src/simulate/drive.ts';
import { Publisher } from '../../../../src/simulate/publisher.ts';
import { deviceNames } from '../../../../src/simulate/readers.ts';
import { basketTag } from '../../../../src/simulate/tags.ts';
import { type Bundle, engine, until } from '../../../support/engine.ts';
import { eventually } from '../../../support/eventually.ts';
import type { Mosquitto } from '../../../support/services/mosquitto.ts';
import { broker, publishAll, publisher, settingsFor } from '../../iot/mqtt/support.ts';

interface Plant extends Bundle {
  readonly mosquitto: Mosquitto;
  start(): Promise<RunningIntake>;
}

async function plant(doors = 3): Promise<Plant> {
  const bundle = await engine({ components: [eventsComponent, iotComponent, rfidComponent] });
  const mosquitto = await broker();
  await registerDoors(bundle.tallyman.database, deviceNames(doors));
  return {
    ...bundle,
    mosquitto,
    start: async () => {
      const settings = settingsFor(mosquitto.port, { subscribeTopics: [readsTopic] });
      const intake = await startIntake({ tallyman: bundle.tallyman, settings });
      onTestFinished(() => intake.stop());
      expect(intake.status().mqtt).toMatchObject({ ready: true });
      return intake;
    },
  };
}

const read = (serial: number, more: object = {}, data: object = {}): string =>
  JSON.stringify({
    type: 'SIMPLE',
    timestamp: '2026-03-01T12:00:00Z',
    data: { idHex: basketTag(serial), ...data },
    ...more,
  });

const countsOf = async ({ rows }: Bundle): Promise<Record<string, number> | undefined> => {
  const [counts] = await rows<Record<string, number>>(
    `select (select count(*)::integer from iot.tag_reads) as raw,
            (select count(*)::integer from rfid.tag_read_processings where error_message is null) as reads,
            (select count(*)::integer from rfid.baskets) as baskets,
            (select count(*)::integer from rfid.movements) as movements`,
  );
  return counts;
};

describe('intake', () => {
  test('what readers send is kept raw and processed; a second intake goes on where the first stopped', {
    timeout: 600_000,
  }, async () => {
    const it = await plant(4);
    const first = await it.start();
    const readers = await Publisher.connect(it.mosquitto.url);
    onTestFinished(() => readers.close());
    const never = new AbortController().signal;
    const driving = driveReaders({
      seed: 7,
      devices: 4,
      baskets: 20,
      rate: 1500,
      count: 2500,
      duplicates: 0.1,
      outOfOrder: 0.1,
      publisher: readers,
      signal: never,
    });
    await until('some reads are in', () => first.status().counts.reads > 300);
    await first.stop();
    await sleep(100);
    const second = await it.start();
    const truth = await driving;
    expect(await readers.flushed(60_000)).toBe(true);
    const { figures } = truth;
    expect(readers.acknowledged).toBe(figures.messages);
    await until(
      'all is in',
      async () => {
        const { raw = 0, reads = 0 } = (await countsOf(it)) ?? {};
        return raw >= figures.reads && reads >= figures.distinctReads;
      },
      60_000,
    );
    // A message whose acknowledgement crossed with the stop comes again: it is raw twice, and counted once.
    const sum = (pick: (intake: RunningIntake) => number): number => pick(first) + pick(second);
    // Intake counts what it has committed: a moment after others can see it.
    await eventually(async () => {
      const counts = await countsOf(it);
      expect(counts).toEqual({
        raw: counts?.raw,
        reads: figures.distinctReads,
        baskets: figures.baskets,
        movements: figures.movements,
      });
      expect(sum((intake) => intake.status().counts.reads)).toBe(counts?.raw);
      expect(sum((intake) => intake.status().counts.duplicates)).toBe(
        (counts?.raw ?? 0) - figures.distinctReads,
      );
    });
  });

  test('MQTT-9: a message that cannot be understood is a dead letter as it came, once, and blocks nobody', async () => {
    const it = await plant();
    const intake = await it.start();
    const client = await publisher(it.mosquitto.port);
    await publishAll(
      client,
      [
        ['zebra/fx/dock-1/reads', read(1)],
        ['zebra/fx/dock-1/reads', '{"type": "SIMP'],
        ['zebra/fx/dock-1/reads', '{"type": "SIMP'],
        ['zebra/fx/dock-2/reads', `[${read(2)},${read(3, { timestamp: 'soon' })},7]`],
        ['zebra/fx/dock-2/reads', '\u0000\u0001'],
        ['zebra/fx/dock-3/reads', read(4)],
      ],
      2,
    );
    await until('they are buried', async () => (await it.tallyman.jobs.counts()).DEAD_LETTER === 3);
    const { items } = await it.tallyman.deadLetters.list({ kind: unreadableKind });
    const kept = items.map(({ payload, lastError }) => ({ ...(payload as { bytes: number }), ...lastError }));
    expect(kept.toSorted((a, b) => a.bytes - b.bytes)).toEqual([
      expect.objectContaining({ encoding: 'base64', body: Buffer.from('\u0000\u0001').toString('base64') }),
      expect.objectContaining({
        topic: 'zebra/fx/dock-1/reads',
        encoding: 'text',
        body: '{"type": "SIMP',
        bytes: 14,
        code: 'UNREADABLE_MESSAGE',
        message: expect.stringContaining('not JSON'),
      }),
      expect.objectContaining({
        message: expect.stringMatching(/^read 2: "soon" is not a time.*; read 3: /),
      }),
    ]);
    // What came behind them may still be under way.
    await eventually(async () => {
      expect(await countsOf(it)).toEqual({ raw: 3, reads: 3, baskets: 3, movements: 3 });
      expect(intake.status()).toMatchObject({
        counts: { unreadable: 4 },
        mqtt: { counters: { acknowledged: 6, inFlight: 0, rejected: 0 } },
      });
    });
  });

  test('MQTT-9: 5 MB and 10,000 reads in one message, and a device nobody knows: intake goes on', async () => {
    const it = await plant();
    const intake = await it.start();
    const client = await publisher(it.mosquitto.port);
    const many = Array.from({ length: 10_000 }, (_, i) =>
      read(1, { timestamp: new Date(Date.UTC(2026, 2, 1) + i).toISOString() }),
    );
    await publishAll(
      client,
      [
        ['zebra/fx/dock-1/reads', `"${'x'.repeat(5_000_000)}"`],
        ['zebra/fx/dock-2/reads', `[${many.join(',')}]`],
        ['zebra/fx/türe ☂/reads', read(2)],
        ['zebra/fx/dock-3/reads', read(3)],
      ],
      2,
    );
    await until('all are in', () => intake.status().mqtt?.counters.acknowledged === 4);
    expect(await countsOf(it)).toEqual({ raw: 10_002, reads: 10_001, baskets: 2, movements: 2 });
    await until('the large one is buried', async () => (await it.tallyman.jobs.counts()).DEAD_LETTER === 1);
    const { items } = await it.tallyman.deadLetters.list({ kind: unreadableKind });
    expect(items[0]).toMatchObject({
      payload: { bytes: 5_000_002 },
      lastError: { code: 'MESSAGE_TOO_LARGE' },
    });
    // The stranger is asked about again; once he is known, his read counts.
    const location = await putLocation(it.tallyman.database, 'default', 'garden');
    await putDevice(it.tallyman.database, {
      tenantId: 'default',
      serial: 'türe ☂',
      locationId: location.id,
    });
    await it.rows(`update tallyman.jobs set scheduled_at = now() where kind = 'rfid.process-read'`);
    await until('it is counted', async () => (await countsOf(it))?.reads === 10_002);
  });

  test('MQTT-9, RFID-5: wrong types, wrong tags and wrong times are dead letters with their reason; the rest counts', async () => {
    const it = await plant();
    const intake = await it.start();
    const client = await publisher(it.mosquitto.port);
    const soon = new Date(Date.now() + 3_600_000).toISOString();
    const items = [
      read(1),
      read(2, { timestamp: 1_772_366_400 }),
      read(2, {}, { idHex: 12 }),
      read(2, { data: 'none' }),
      read(2, {}, { idHex: basketTag(2).slice(0, 20) }),
      read(2, {}, { idHex: `AA${basketTag(2).slice(2)}` }),
      read(2, { timestamp: soon }),
      read(2, { timestamp: '1970-01-01T00:00:01Z' }),
      read(3, {}, { antenna: 'left', peakRssi: 1e-50 }),
    ];
    await publishAll(client, [['zebra/fx/dock-1/reads', `[${items.join(',')}]`]], 2);
    await until('it is in', () => intake.status().mqtt?.counters.acknowledged === 1);
    await until('they are buried', async () => (await it.tallyman.jobs.counts()).DEAD_LETTER === 5);
    const { items: letters } = await it.tallyman.deadLetters.list();
    expect(letters.map(({ lastError }) => lastError?.message ?? '').toSorted()).toEqual([
      expect.stringMatching(/^"1970-01-01T00:00:01.000000Z" is before .*clock set/),
      expect.stringMatching(/^".*" lies in the future/),
      expect.stringMatching(/^EPC "3314.*" is refused: it has 20 hex digits/),
      expect.stringMatching(/^EPC "AA14.*" is refused: its header AA/),
      expect.stringMatching(
        /^read 2: timestamp must be a text.*; read 3: idHex must.*; read 4: data must be/,
      ),
    ]);
    // What a reader sent is kept, whatever becomes of it.
    expect(await countsOf(it)).toEqual({ raw: 6, reads: 2, baskets: 2, movements: 2 });
    expect(intake.status()).toMatchObject({
      counts: { reads: 6, failed: 4, unreadable: 1 },
      mqtt: { counters: { inFlight: 0, rejected: 0 } },
    });
  });

  test('a redriven message that can be understood by now is taken in', async () => {
    const it = await plant();
    await it.start();
    const client = await publisher(it.mosquitto.port);
    await publishAll(client, [['zebra/fx/dock-1/reads', '{"type": "SIMP']], 2);
    await until('it is buried', async () => (await it.tallyman.jobs.counts()).DEAD_LETTER === 1);
    // As if the parser had learned to read it.
    await it.rows(
      `update tallyman.dead_letters set payload = (payload::jsonb || jsonb_build_object('body', $1::text, 'bytes', $2::integer))::json`,
      [read(9), read(9).length],
    );
    const [letter] = (await it.tallyman.deadLetters.list()).items;
    await it.tallyman.deadLetters.redrive(letter?.id ?? '');
    await until('it is counted', async () => (await countsOf(it))?.reads === 1);
    expect((await it.tallyman.jobs.counts()).DEAD_LETTER).toBe(0);
  });
});
