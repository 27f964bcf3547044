import { expect, test } from 'vitest';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { findPassportOf } from '../../../src/apps/passports/store/index.ts';
import { appendItemEvent } from '../../../src/apps/passports/write/item-events.ts';
import { enterTenant, TenantScope } from '../../../src/engine/database/tenant.ts';
import { issuedAt, type PassportBundle, passports, putSample, runToEnd } from './support.ts';

/** A battery with an active version and three signed events. */
async function batteryWithEvents() {
  const bundle = await passports();
  const { change, on, means } = bundle;
  await change((work) => putSample(work, means, 1));
  await runToEnd(bundle);
  const found = await findPassportOf(on, product.gtin, 'SP100-000001');
  const [passportId, versionId] = [found?.id ?? '', found?.activeVersionId ?? ''];
  for (const cycles of [12, 14, 16])
    await change((work) =>
      appendItemEvent(work, means.keys, passportId, {
        type: 'cycles',
        occurredAt: issuedAt,
        data: { cycles },
        key: `reading-${cycles}`,
      }),
    );
  return { ...bundle, passportId, versionId };
}

/** What replay says after an owner of the tables has done this; all of it is taken back. */
async function replayedAfter(
  { tallyman, means }: PassportBundle,
  versionId: string,
  damage: string,
): Promise<string> {
  const enough = new Error('rolled back');
  let said = 'nothing';
  await tallyman.database
    .transaction(async (tx) => {
      await tx.query('set local session_replication_role = replica');
      const { rowCount } = await tx.query(damage);
      if (rowCount === 0) throw new Error(`nothing to damage: ${damage}`);
      await tx.query(enterTenant(tallyman.database, 'default'));
      await replayVersion(new TenantScope('default', tx, { prepare: false }), versionId, means).catch(
        (error: Error & { readonly code?: string }) => {
          said = `${error.code}: ${error.message}`;
        },
      );
      throw enough;
    })
    .catch((error: unknown) => {
      if (error !== enough) throw error;
    });
  return said;
}

/** One bit or one step away. */
const changed = (column: string, type: string): string => {
  if (type === 'bytea') return `set_byte(${column}, 3, get_byte(${column}, 3) # 1)`;
  if (type === 'uuid') return 'gen_random_uuid()';
  if (type.startsWith('timestamp')) return `${column} + interval '1 millisecond'`;
  if (type === 'integer') return `${column} + 10`;
  return `left(${column}, -1) || chr(ascii(right(${column}, 1)) # 1)`;
};

test('BPC-11, BPC-15: replay checks the signed events of the battery and names the one that is wrong: changed, missing, out of order', {
  timeout: 120_000,
}, async () => {
  const at = await batteryWithEvents();
  const { on, means, passportId, versionId, rows } = at;
  await replayVersion(on, versionId, means);
  const named = (seq: number) =>
    `REPLAY_MISMATCH: version ${versionId}: event ${seq} of passport:${passportId}: `;

  const columns = await rows<{ name: string; type: string }>(
    `select a.attname as name, format_type(a.atttypid, null) as type from pg_attribute a
      where a.attrelid = 'passports.item_events'::regclass and a.attnum > 0 and not a.attisdropped`,
  );
  expect(columns.length).toBeGreaterThan(10);
  for (const { name, type } of columns)
    for (const seq of [1, 2, 3])
      expect(
        await replayedAfter(
          at,
          versionId,
          `update passports.item_events set ${name} = ${changed(name, type)} where seq = ${seq}`,
        ),
        `${name} of event ${seq}`,
      ).toContain(named(seq));

  for (const seq of [1, 2, 3])
    expect(await replayedAfter(at, versionId, `delete from passports.item_events where seq = ${seq}`)).toBe(
      `${named(seq)}it was deleted; the audit trail names it`,
    );
  // Without a trace in the audit trail the next one does not continue it.
  expect(
    await replayedAfter(
      at,
      versionId,
      `with e as (delete from passports.item_events where seq = 2 returning 1)
       delete from passports.audit_events where type = 'passport.event_added' and data::jsonb ->> 'seq' = '2'`,
    ),
  ).toBe(`${named(3)}the event before it is missing`);
  // Two events in each other's place, each still signed.
  const swap = `update passports.item_events e set type = o.type, content = o.content, hash = o.hash, signature = o.signature
    from passports.item_events o where (e.seq, o.seq) in ((1, 2), (2, 1))`;
  expect(await replayedAfter(at, versionId, swap)).toContain(named(1));
});
