import { expect, test } from 'vitest';
import { eventsComponent } from '../../src/events/component.ts';
import { emit } from '../../src/events/emit.ts';
import { purgeEventsKind } from '../../src/events/purge.ts';
import { cliOn } from '../cli/support.ts';
import { drained, engine } from '../support/engine.ts';
import { RecordedLogs } from '../support/services/logs.ts';
import { moved } from './support.ts';

test('WH-5: a listener that nobody follows any more, and that keeps old events, is named with what removes it', async () => {
  const logs = new RecordedLogs();
  const scene = await engine({ components: [eventsComponent], logger: logs });
  const { database } = scene.tallyman;
  const day = 86_400_000;
  const kind = purgeEventsKind(database, 30 * day);
  const doctor = async () => {
    const { stdout } = await cliOn(scene.url)('doctor', '--json');
    const { findings } = JSON.parse(stdout) as { findings: { check: string }[] };
    return findings.find(({ check }) => check === 'event-listeners');
  };
  /** What it warns of. */
  const purge = async () => {
    logs.lines.length = 0;
    await scene.tallyman.enqueue(kind, {});
    await drained(scene);
    return logs.at('warn').map(({ fields }) => (fields as { listener: string }).listener);
  };
  await scene.work({ kinds: [kind] });
  await scene.rows(`select tallyman_events.listen('boundary:it''s gone'), tallyman_events.listen('at-work')`);
  await emit(database, moved('P-1'));
  const old = `update tallyman_events.events set created_at = now() - interval '45 days'`;
  // It is behind, but not by more than events are kept.
  expect(await purge()).toEqual([]);
  await scene.rows(old);
  await scene.rows(
    `update tallyman_events.listeners set cursor = tallyman_events.position() where name = 'at-work'`,
  );
  expect(await purge()).toEqual([`boundary:it's gone`]);
  const finding = await doctor();
  expect(finding).toMatchObject({
    level: 'warn',
    message: `events are not purged: they wait for "boundary:it's gone" (45 days behind)`,
  });
  const remedy = /select tallyman_events.*;/.exec(JSON.stringify(finding))?.[0] ?? '';
  await scene.rows(remedy);
  expect(await purge()).toEqual([]);
  expect(await scene.rows('select 1 from tallyman_events.events')).toEqual([]);
  expect(await doctor()).toMatchObject({ level: 'ok' });
});
