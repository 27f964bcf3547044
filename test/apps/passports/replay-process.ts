/** Replays all versions of a database in a process with a clock, a locale and a time zone of its own, and says the hashes. */
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { listVersions } from '../../../src/apps/passports/store/index.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { TenantDatabase } from '../../../src/engine/database/tenant.ts';
import { testMeans } from './means.ts';

const database = await Database.connect({ url: process.env.DATABASE_URL ?? '', poolSize: 2 });
const RealDate = Date;
const shift = Number(process.env.CLOCK_SHIFT_MS);
globalThis.Date = class extends RealDate {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(RealDate.now() + shift);
    else super(...(given as [number]));
  }
  static override now(): number {
    return RealDate.now() + shift;
  }
} as DateConstructor;

const on = new TenantDatabase(database, 'default');
const { items } = await listVersions(on, {}, { limit: 200 });
const means = testMeans();
const replayed = [];
for (const { id, receiptHash } of items)
  if (receiptHash !== null) replayed.push(await replayVersion(on, id, means));
const { locale, timeZone } = new Intl.DateTimeFormat().resolvedOptions();
console.log(JSON.stringify({ replayed, locale, timeZone, year: new Date().getFullYear() }));
await database.close();
