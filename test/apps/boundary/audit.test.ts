import { expect, test } from 'vitest';
import { auditLog } from '../../../src/apps/boundary/audit.ts';
import type { StreamId } from '../../../src/apps/boundary/store/store.ts';
import { fact, numbers } from './store/facts.ts';
import { boundaryDatabase, storeOn } from './support.ts';

const stream: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

test('BND-10: a fact that was tampered with in the database is named, and only that one', async () => {
  const { database } = await boundaryDatabase();
  const store = storeOn(database);
  expect(await auditLog(store, stream)).toEqual({ first: 0, last: 0, damages: [], chains: new Map() });
  await Promise.all(numbers(1, 600).map((n) => store.append(stream, fact(`m${n}`))));
  await store.trim(stream, 10);
  const { chain } = (await store.state(stream)) ?? {};
  const sound = await auditLog(store, stream, new Set([600]));
  expect(sound).toEqual({ first: 11, last: 600, damages: [], chains: new Map([[600, chain]]) });

  const tamper = (sql: string) => database.query(`update tallyman.log_entries set ${sql}`);
  // No part of the content: only the chain hash tells.
  await tamper(
    `payload = replace(payload::text, '"producedAt":0', '"producedAt":7')::json where "offset" = 200`,
  );
  await tamper(`payload = replace(payload::text, 'done', 'lost')::json where "offset" = 300`);
  await tamper(`key = 'another' where "offset" = 550`);
  const { damages } = await auditLog(store, stream);
  expect(damages.map(({ offset, messageId }) => [offset, messageId])).toEqual([
    [200, 'm200'],
    [300, 'm300'],
    [550, 'another'],
  ]);
  await database.query(`delete from tallyman.log_entries where "offset" = 400`);
  const { damages: more } = await auditLog(store, stream);
  expect(more.map(({ offset, what }) => [offset, what.includes('400 to 400')])).toEqual([
    [200, false],
    [300, false],
    [401, true],
    [550, false],
  ]);
});
