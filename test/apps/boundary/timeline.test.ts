import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { boundaryKeys } from '../../../src/apps/boundary/config.ts';
import { localCaller, openNode } from '../../../src/apps/boundary/node.ts';
import { settingsFrom } from '../../../src/apps/boundary/settings.ts';
import { indexSubjects } from '../../../src/apps/boundary/subjects.ts';
import { trimStreams } from '../../../src/apps/boundary/upkeep.ts';
import { settingsOf } from '../../../src/host/app.ts';
import { server } from '../../server/support.ts';

test('time line and search find facts by message id and by subject, of the own tenant, until they are trimmed', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-timeline-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const { tallyman, host, as } = await server();
  const { database } = tallyman;
  const settings = settingsFrom(
    settingsOf(boundaryKeys, {
      ...host.config,
      'boundary.zone': 'plant-a',
      'boundary.zones': ['enterprise'],
      'boundary.objects.folder': folder,
      'boundary.retention.keepMs': 0,
    }),
  );
  if (!settings) throw new Error('no zone');
  const node = await openNode(settings, database);
  onTestFinished(() => node.stop());
  const append = (messageId: string, predicate: string) =>
    node.intake.append(localCaller(settings, 'test'), {
      messageId,
      fromZone: 'plant-a',
      toZone: 'enterprise',
      producedAt: 1,
      subject: 'work_order:WO-1',
      predicate,
      objectJson: '1',
    });
  await append('wo-1/begun', 'was_begun');
  await append('wo-1/done', 'was_done');
  await indexSubjects(node);
  await indexSubjects(node);
  const ask = await as('auditor');
  const timeline = async (subject: string, by = ask) =>
    (await by('GET', `/v1/timeline/${encodeURIComponent(subject)}`)).body.items;
  const search = async (text: string, by = ask) =>
    (await by('GET', `/v1/search?q=${encodeURIComponent(text)}`)).body.items;
  expect(await timeline('work_order:WO-1')).toMatchObject([
    { type: 'boundary.fact.appended', details: { message_id: 'wo-1/done', offset: 2 } },
    { text: 'work_order:WO-1 was_begun: fact 1 for enterprise', details: { message_id: 'wo-1/begun' } },
  ]);
  // The other zone has confirmed the first one.
  const stream = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;
  await node.store.addReceipt('store', {
    ...stream,
    epoch: (await node.store.state(stream))?.epoch ?? '',
    fromOffset: 1,
    toOffset: 1,
    chain: '00',
    receivedAt: Date.parse('2030-01-01T00:00:00Z'),
    keyId: 'k',
    signature: new Uint8Array(64),
  });
  expect(await timeline('fact:wo-1/begun')).toMatchObject([
    { type: 'boundary.fact.crossed', at: '2030-01-01T00:00:00.000Z' },
    { type: 'boundary.fact.appended' },
  ]);
  expect(await timeline('fact:wo-1/done')).toMatchObject([{ type: 'boundary.fact.appended' }]);
  expect(await search('wo-1/d')).toEqual([{ type: 'fact', id: 'wo-1/done', title: 'fact wo-1/done' }]);
  expect(await search('work_order:WO')).toEqual([
    { type: 'work_order', id: 'WO-1', title: 'work_order:WO-1' },
  ]);
  const stranger = await as('auditor', 'other');
  expect([await timeline('fact:wo-1/done', stranger), await search('wo-1', stranger)]).toEqual([[], []]);

  const opened = await node.store.openConsumer(stream, 'peer:enterprise', {
    instance: 'n',
    leaseMs: 60_000,
    start: { after: 0 },
  });
  await node.store.noteFetched(stream, opened, 1);
  await node.store.confirm(stream, 'peer:enterprise', 'n', 1);
  expect(await trimStreams(node)).toBe(1);
  expect(await timeline('fact:wo-1/begun')).toEqual([]);
  expect(await search('wo-1')).toMatchObject([{ id: 'wo-1/done' }]);
});
