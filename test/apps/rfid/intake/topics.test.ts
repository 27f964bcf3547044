import { Registry } from 'prom-client';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  iotComponent,
  putDevice,
  putLocation,
  type SubscriptionSetting,
  subscriptionsOf,
} from '../../../../src/apps/iot/index.ts';
import { rfidComponent } from '../../../../src/apps/rfid/index.ts';
import {
  type IntakeOptions,
  PlantMetrics,
  type RunningIntake,
  startIntake,
} from '../../../../src/apps/rfid/intake/index.ts';
import { replayOf } from '../../../../src/apps/rfid/intake/replay.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { basketTag } from '../../../../src/simulate/tags.ts';
import { type Bundle, engine, until } from '../../../support/engine.ts';
import { RecordedLogs } from '../../../support/services/logs.ts';
import type { Mosquitto } from '../../../support/services/mosquitto.ts';
import { broker, publishAll, publisher, settingsFor } from '../../iot/mqtt/support.ts';

interface Plant extends Bundle {
  readonly mosquitto: Mosquitto;
  readonly logs: RecordedLogs;
  publish(...messages: (readonly [topic: string, payload: unknown])[]): Promise<void>;
  start(topics: readonly SubscriptionSetting[], more?: Partial<IntakeOptions>): Promise<RunningIntake>;
}

async function plant(tenants: readonly string[] = ['default']): Promise<Plant> {
  const bundle = await engine({ components: [eventsComponent, iotComponent, rfidComponent] });
  const { database } = bundle.tallyman;
  for (const tenantId of tenants) {
    const { id } = await putLocation(database, tenantId, 'dock');
    await putDevice(database, { tenantId, serial: 'dock-1', locationId: id, role: 'dock-door' });
  }
  const mosquitto = await broker();
  const readers = await publisher(mosquitto.port);
  const logs = new RecordedLogs();
  return {
    ...bundle,
    mosquitto,
    logs,
    publish: (...messages) =>
      publishAll(
        readers,
        messages.map(([topic, payload]) => [
          topic,
          typeof payload === 'string' ? payload : JSON.stringify(payload),
        ]),
        2,
      ),
    start: async (topics, more = {}) => {
      const subscriptions = subscriptionsOf(topics);
      const settings = settingsFor(mosquitto.port, {
        subscribeTopics: subscriptions.map(({ topic }) => topic),
      });
      const intake = await startIntake({
        tallyman: bundle.tallyman,
        settings,
        subscriptions,
        logger: logs,
        worker: { pollIntervalMs: 100 },
        ...more,
      });
      onTestFinished(() => intake.stop());
      return intake;
    },
  };
}

const read = (epc: string, at: Date = new Date()) => ({
  type: 'SIMPLE',
  timestamp: at.toISOString(),
  data: { idHex: epc },
});

describe('topics', () => {
  test('MQTT-12: what is subscribed is what is configured; each topic has its tenant', async () => {
    const it = await plant(['default', 'north', 'south']);
    const intake = await it.start([
      { topic: 'plant/+/+/reads', tenant: { level: 2 } },
      { topic: 'old/+/reads', tenant: 'south' },
    ]);
    const { mqtt } = intake.status();
    expect(mqtt?.subscriptions.map(({ topic }) => topic)).toEqual(['plant/+/+/reads', 'old/+/reads']);
    await it.publish(
      ['zebra/fx/dock-1/reads', read(basketTag(1))],
      ['plant/north/dock-1/reads', read(basketTag(2))],
      ['old/dock-1/reads', read(basketTag(3))],
      ['plant//dock-1/reads', read(basketTag(4))],
    );
    await until(
      'all are in',
      () => intake.status().counts.reads === 2 && intake.status().counts.unreadable === 1,
    );
    expect(await it.rows('select tenant_id, epc_hex from rfid.baskets order by epc_hex')).toEqual([
      { tenant_id: 'north', epc_hex: basketTag(2) },
      { tenant_id: 'south', epc_hex: basketTag(3) },
    ]);
    await until('the one without a tenant is a dead letter', async () => {
      const found = await it.rows<{ tenant_id: string; message: string }>(
        `select tenant_id, last_error ->> 'message' as message from tallyman.dead_letters`,
      );
      return found[0]?.tenant_id === 'default' && found[0].message.includes('names no tenant');
    });
  });

  test('MQTT-12: without topics it is not ready, and says what to set', async () => {
    const it = await plant();
    const { mqtt } = (await it.start([])).status();
    expect(mqtt).toMatchObject({
      ready: false,
      subscriptions: [],
      reason: expect.stringMatching(/subscribeTopics/),
    });
  });

  test('MQTT-12: events of a reader tell last seen, state and errors; what the broker delivers twice counts once', async () => {
    const it = await plant();
    const intake = await it.start(['zebra/fx/+/reads', 'zebra/fx/+/events']);
    const at = (seconds: number) => new Date(Date.UTC(2026, 2, 1, 12, 0, seconds)).toISOString();
    const topic = 'zebra/fx/dock-1/events';
    const heartbeat = (seconds: number, antenna: string) => ({
      type: 'heartbeat',
      timestamp: at(seconds),
      data: { radio_control: { antennas: { '1': antenna } }, system: { temperature: 38 } },
    });
    const error = { type: 'error', timestamp: at(2), data: { message: 'antenna 2 is not there' } };
    await it.publish(
      [topic, heartbeat(0, 'connected')],
      [topic, { type: 'gpi', timestamp: at(1), data: { pin: 1, state: 'HIGH' } }],
      [topic, error],
      [topic, [error, { type: 'warning', timestamp: at(3), data: { message: 'CPU above 90 %' } }]],
      [topic, heartbeat(5, 'disconnected')],
      // A late one changes nothing that is newer.
      [topic, heartbeat(4, 'connected')],
      [topic, { type: 7 }],
    );
    await until(
      'all are in',
      () => intake.status().counts.deviceEvents === 7 && intake.status().counts.unreadable === 1,
    );
    const [state] = await it.rows<Record<string, unknown>>(
      `select state, errors::int, warnings::int, last_error, last_error_at, last_seen_at > now() - interval '1 minute' as is_seen,
              last_heartbeat_at is not null as beats from iot.device_states`,
    );
    expect(state).toEqual({
      state: { 'antenna 1': 'disconnected', 'gpi 1': 'HIGH', temperature: 38 },
      errors: 1,
      warnings: 1,
      last_error: 'antenna 2 is not there',
      last_error_at: new Date(at(2)),
      is_seen: true,
      beats: true,
    });
    expect(await it.rows('select type, level from iot.device_events order by occurred_at')).toEqual([
      { type: 'gpi', level: 'info' },
      { type: 'error', level: 'error' },
      { type: 'warning', level: 'warning' },
    ]);
    expect(intake.status().counts).toMatchObject({ reads: 0, deviceEvents: 7 });
  });
});

describe('foreign tags', () => {
  const foreign = 'E28011700000020F1234ABCD';

  test('RFID-8: a refused tag makes one dead letter at each device, with a count; every read keeps its raw row', async () => {
    const it = await plant();
    const { id } = await putLocation(it.tallyman.database, 'default', 'dock 2');
    await putDevice(it.tallyman.database, { tenantId: 'default', serial: 'dock-2', locationId: id });
    const intake = await it.start(['zebra/fx/+/reads']);
    const now = Date.now();
    const many = Array.from({ length: 40 }, (_, i) => read(foreign, new Date(now - i)));
    await it.publish(
      ['zebra/fx/dock-1/reads', many],
      ['zebra/fx/dock-1/reads', many.slice(0, 20)],
      ['zebra/fx/dock-2/reads', read(foreign)],
      ['zebra/fx/dock-2/reads', read(basketTag(1))],
    );
    await until('all are in', () => intake.status().counts.reads === 62);
    const letters = () =>
      it.rows<Record<string, unknown>>(
        `select entity_type, split_part(entity_id, '|', 1) as device, split_part(entity_id, '|', 2) as epc, attempts::int
           from tallyman.dead_letters order by 2`,
      );
    await until('there are two', async () => (await letters()).length === 2);
    expect(await letters()).toEqual([
      { entity_type: 'tag_read', device: 'dock-1', epc: foreign, attempts: 1 },
      { entity_type: 'tag_read', device: 'dock-2', epc: foreign, attempts: 1 },
    ]);
    expect(
      await it.rows('select device_id, epc_hex, reads::int from rfid.refused_tags order by device_id'),
    ).toEqual([
      { device_id: 'dock-1', epc_hex: foreign, reads: 60 },
      { device_id: 'dock-2', epc_hex: foreign, reads: 1 },
    ]);
    expect(
      await it.rows('select epc_hex, count(*)::int as reads from iot.tag_reads group by 1 order by 2'),
    ).toEqual([
      { epc_hex: basketTag(1), reads: 1 },
      { epc_hex: foreign, reads: 61 },
    ]);
    const recorded = () =>
      it.rows('select device_id from rfid.tag_read_processings where error_message is not null order by 1');
    expect(await recorded()).toEqual([{ device_id: 'dock-1' }, { device_id: 'dock-2' }]);
    await intake.stop();

    // A replay finds them again: they are counted already.
    const { failed } = await replayOf(it.tallyman).replay({ from: '1' });
    expect(failed).toBeGreaterThan(0);
    expect(await recorded()).toHaveLength(2);
    expect(await it.rows('select sum(reads)::int as reads from rfid.refused_tags')).toEqual([{ reads: 61 }]);

    // And when such tags count one day, it finds what they did.
    await replayOf(it.tallyman, {
      judgement: { tags: { schemes: 'any', include: [], ignore: [] } },
    }).replay({ from: '1' });
    expect(
      await it.rows(
        `select count(*)::int as reads, count(distinct device_id)::int as devices from rfid.tag_read_processings
          where epc_hex = $1 and error_message is null`,
        [foreign],
      ),
    ).toEqual([{ reads: 41, devices: 2 }]);
  });

  test('RFID-8: ignored tags are counted by device; `any` keeps tags of other schemes and lengths', async () => {
    const it = await plant();
    const metrics = new PlantMetrics(new Registry());
    const intake = await it.start(['zebra/fx/+/reads'], {
      observer: metrics,
      judgement: { tags: { schemes: 'any', include: [], ignore: ['E280'] } },
    });
    await it.publish(
      ['zebra/fx/dock-1/reads', [read(foreign), read(foreign), read(basketTag(1)), read('AB12')]],
      ['zebra/fx/dock-1/reads', read(foreign)],
      ['zebra/fx/dock-1/reads', [read('not hex'), read(`3${'0'.repeat(31)}`)]],
    );
    await until(
      'all are in',
      () => intake.status().counts.ignored === 3 && intake.status().counts.reads === 4,
    );
    await intake.stop();
    expect(await it.rows('select serial, ignored_reads::int from iot.device_states')).toEqual([
      { serial: 'dock-1', ignored_reads: 3 },
    ]);
    expect(await it.rows('select epc_hex, epc_uri from rfid.baskets order by length(epc_hex)')).toEqual([
      { epc_hex: 'AB12', epc_uri: 'urn:epc:raw:16.xAB12' },
      { epc_hex: basketTag(1), epc_uri: expect.stringMatching(/^urn:epc:id:grai:/) },
      { epc_hex: `3${'0'.repeat(31)}`, epc_uri: `urn:epc:raw:128.x3${'0'.repeat(31)}` },
    ]);
    expect(await it.rows('select 1 from iot.tag_reads where epc_hex = $1', [foreign])).toEqual([]);
  });
});

describe('clocks', () => {
  const minute = 60_000;
  const readAt = (ms: number) => new Date(Date.now() + ms);

  test('RFID-17: the skew of a device is measured and shown, and one that is ahead is warned about', async () => {
    const it = await plant();
    const registry = new Registry();
    const metrics = new PlantMetrics(registry);
    const intake = await it.start(['zebra/fx/+/reads'], { observer: metrics });
    metrics.observe(intake);
    await it.publish(
      ['zebra/fx/dock-1/reads', read(basketTag(1), readAt(2 * minute))],
      ['zebra/fx/dock-2/reads', read(basketTag(2), readAt(-10))],
    );
    await until('both are in', () => intake.status().counts.reads === 2);
    await until('it is written', async () => (await it.rows('select 1 from iot.device_states')).length === 2);
    const [ahead, right] = await it.rows<{ serial: string; seconds: number }>(
      'select serial, (clock_skew_ms / 1000.0)::float8 as seconds from iot.device_states order by serial',
    );
    expect(ahead?.seconds).toBeGreaterThan(100);
    expect(Math.abs(right?.seconds ?? 99)).toBeLessThan(20);
    expect(
      it.logs.at('warn').filter(({ message }) => message.includes('clock of a device is ahead')),
    ).toEqual([expect.objectContaining({ fields: expect.objectContaining({ device: 'dock-1' }) })]);
    expect(await registry.metrics()).toMatch(
      /tallyman_device_clock_skew_seconds\{device="dock-1"\} 1[012]\d/,
    );
  });

  test('RFID-17: reads that are ahead are kept, clamped to their arrival, or refused', {
    timeout: 600_000,
  }, async () => {
    const it = await plant();
    const aheadLimit = 30_000_000;
    const offsets = async () =>
      it.rows<{ epc: string; ahead: boolean }>(
        `select epc_hex as epc, event_timestamp > processed_at + interval '45 seconds' as ahead
           from rfid.tag_read_processings where error_message is null order by id`,
      );
    const expected: { epc: string; ahead: boolean }[] = [];
    let number = 0;
    for (const [policy, kept] of [
      ['keep', true],
      ['clamp', false],
      ['refuse', undefined],
    ] as const) {
      const intake = await it.start(['zebra/fx/+/reads'], { judgement: { clock: { policy, aheadLimit } } });
      number += 1;
      const message = read(basketTag(number), readAt(2 * minute));
      await it.publish(['zebra/fx/dock-1/reads', message]);
      await until('it is in', () => intake.status().counts.reads === 1);
      if (kept !== undefined) {
        expected.push({ epc: basketTag(number), ahead: kept });
        // The same read again, as after a lost acknowledgement, is a duplicate though it arrives later.
        await it.publish(['zebra/fx/dock-1/reads', message]);
        await until('it came twice', () => intake.status().counts.duplicates === 1);
      } else expect(intake.status().counts.failed).toBe(1);
      await intake.stop();
    }
    expect(await offsets()).toEqual(expected);
    const [letter] = await it.rows<{ error_message: string }>(
      'select error_message from rfid.tag_read_processings where error_message is not null',
    );
    expect(letter?.error_message).toMatch(/s ahead of the server; set the reader's clock/);
  });
});
