import { expect, test } from 'vitest';
import { parseZebraEvents } from '../../../src/apps/iot/zebra-events.ts';

const receivedAt = new Date('2026-03-01T12:00:05Z');
const parse = (message: unknown) =>
  parseZebraEvents(Buffer.from(typeof message === 'string' ? message : JSON.stringify(message)), {
    tenantId: 'default',
    deviceId: 'dock-7',
    receivedAt,
  });

const heartbeat = {
  component: 'RG',
  eventNum: 2,
  timestamp: '2026-03-01T12:00:00.000+0000',
  type: 'heartbeat',
  data: {
    radio_control: {
      antennas: { '1': 'connected', '2': 'disconnected' },
      cpu: 5,
      numErrors: 0,
      radioActivity: 'active',
      radioConnection: 'connected',
      status: 'running',
    },
    system: { GPI: { '1': 'HIGH' }, temperature: 38, uptime: '26 days 01:11:17', ntp: { offset: 0.1 } },
  },
};

test('MQTT-12: a heartbeat tells antennas, inputs, radio and temperature', () => {
  const { events, rejected } = parse(heartbeat);
  expect(rejected).toEqual([]);
  expect(events).toEqual([
    expect.objectContaining({
      deviceId: 'dock-7',
      type: 'heartbeat',
      level: 'info',
      isHeartbeat: true,
      ownClock: true,
      occurredAt: '2026-03-01T12:00:00.000000Z',
      state: {
        'antenna 1': 'connected',
        'antenna 2': 'disconnected',
        radio: 'connected',
        'radio activity': 'active',
        'radio control': 'running',
        errors: 0,
        'gpi 1': 'HIGH',
        temperature: 38,
        uptime: '26 days 01:11:17',
        'ntp offset': 0.1,
      },
    }),
  ]);
});

test('MQTT-12: inputs, antennas, errors and warnings; one of a kind that is not known is kept', () => {
  const at = '2026-03-01T12:00:01Z';
  const { events } = parse([
    { type: 'gpi', timestamp: at, data: { pin: 2, state: 'LOW' } },
    { type: 'antenna', timestamp: at, data: { antenna: 1, status: 'disconnected' } },
    { type: 'error', timestamp: at, component: 'RC', data: { code: 5, message: 'antenna 2 is not there' } },
    { type: 'exception', timestamp: at, data: { description: 'CPU above 90 %' } },
    { type: 'warnings', timestamp: at, data: {} },
    { type: 'userapp', data: 'hello' },
  ]);
  expect(events.map(({ type, level, summary, state }) => [type, level, summary, state])).toEqual([
    ['gpi', 'info', 'gpi 2: LOW', { 'gpi 2': 'LOW' }],
    ['antenna', 'info', 'antenna 1: disconnected', { 'antenna 1': 'disconnected' }],
    ['error', 'error', 'antenna 2 is not there', {}],
    ['exception', 'error', 'CPU above 90 %', {}],
    ['warnings', 'warning', 'warnings', {}],
    ['userapp', 'info', 'userapp', {}],
  ]);
  expect(events.at(-1)).toMatchObject({ ownClock: false, occurredAt: '2026-03-01T12:00:05.000000Z' });
});

test('MQTT-9: what is no event is told item by item', () => {
  expect(parse('{"type"').rejected).toEqual([{ index: null, reason: expect.stringContaining('not JSON') }]);
  expect(
    parse([7, { data: {} }, { type: 'gpi', timestamp: 'now' }, { type: 'gpi', timestamp: 7 }, heartbeat]),
  ).toMatchObject({
    events: [{ type: 'heartbeat' }],
    rejected: [
      { index: 0, reason: 'an event must be an object, got a number' },
      { index: 1, reason: 'type must be a text, got nothing' },
      { index: 2, reason: expect.stringContaining('is not a time') },
      { index: 3, reason: 'timestamp must be a text, got a number' },
    ],
  });
});
