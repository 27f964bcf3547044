import { expect, it } from 'vitest';
import { labelEventTypes } from '../../../src/apps/labels/events.ts';
import { askGateways } from '../../../src/apps/labels/worker/ask.ts';
import { readEvents } from '../../../src/events/read.ts';
import { until } from '../../support/engine.ts';
import { shelf } from './shelf.ts';
import { mac, setPrice } from './support.ts';

it('WH-11 label.shown and label.failed are told with the change, as the catalogue says', async () => {
  const scene = await shelf();
  const told = async () => {
    const { events } = await readEvents(scene.tallyman.database, '0', { type: 'label.*' }, 1000);
    for (const { type, payload } of events)
      labelEventTypes.find((known) => known.type === type)?.schema.parse(payload);
    return events.map(({ type, aggregateId }) => `${type} ${aggregateId}`);
  };
  const { signal } = new AbortController();
  const observer = { pushed: () => {}, unchanged: () => {}, shown: () => {}, drifted: () => {} };
  const asked = { database: scene.tallyman.database, gateways: scene.gateways, observer };
  await scene.start();
  await scene.done();
  await until('the label shows it', async () => {
    await scene.rows('update labels.pages set ask_at = now() where ask_at is not null');
    await askGateways(asked, signal);
    return (await told()).length > 0;
  });
  expect(await told()).toEqual([`label.shown ${mac(1)}`]);
  scene.simulator.simulation.labels.register(mac(1)).settings = { fault: '403' };
  await setPrice(scene, 'P0', '2.00');
  await scene.done();
  expect(await told()).toEqual([`label.shown ${mac(1)}`, `label.failed ${mac(1)}`]);
});
