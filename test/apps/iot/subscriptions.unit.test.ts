import { expect, test } from 'vitest';
import { originOf, subscriptionsOf } from '../../../src/apps/iot/subscriptions.ts';

test('MQTT-12: a topic tells parser, tenant and device; a filter alone takes the defaults', () => {
  const subscriptions = subscriptionsOf([
    'zebra/fx/+/reads',
    'zebra/fx/+/events',
    { topic: 'plant/+/rfid/#', tenant: { level: 2 }, device: { level: 5 } },
    { topic: 'acme/+/x', tenant: 'acme', parser: 'zebra-events' },
  ]);
  const of = (topic: string) => originOf(subscriptions, topic);
  expect(of('zebra/fx/dock-7/reads')).toEqual({
    parser: 'zebra-reads',
    tenantId: 'default',
    deviceId: 'dock-7',
  });
  expect(of('zebra/fx/dock-7/events')).toMatchObject({ parser: 'zebra-events', deviceId: 'dock-7' });
  expect(of('plant/north/rfid/hall/fx-1/reads')).toEqual({
    parser: 'zebra-reads',
    tenantId: 'north',
    deviceId: 'fx-1',
  });
  expect(of('acme/7/x')).toEqual({ parser: 'zebra-events', tenantId: 'acme', deviceId: '7' });
  expect(of('other/topic')).toBeUndefined();
});

test('MQTT-12: a topic that names no tenant or no device is told, and belongs to the default tenant', () => {
  const subscriptions = subscriptionsOf([{ topic: '+/+/reads', tenant: { level: 1 } }]);
  expect(originOf(subscriptions, '/dock-7/reads')).toMatchObject({
    tenantId: 'default',
    flaw: expect.stringContaining('names no tenant'),
  });
  expect(originOf(subscriptions, 'acme//reads')).toMatchObject({
    tenantId: 'acme',
    flaw: expect.stringContaining('names no device'),
  });
});

test('MQTT-12: a variable in a subscription is expanded; a missing one is an error', () => {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: as it stands in a configuration
  const wanted = ['plant/${HALL}/+/reads'];
  expect(subscriptionsOf(wanted, { HALL: 'north' })[0]?.topic).toBe('plant/north/+/reads');
  expect(() => subscriptionsOf(wanted, {})).toThrow(/subscribeTopics\[0\].*no HALL/);
});
