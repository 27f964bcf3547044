/** Enters the section, writes inside a transaction that it never commits, says so, and stays until it is killed. */
import { writeSync } from 'node:fs';
import { Database } from '../../../../src/engine/database/database.ts';
import { exclusively } from '../../../../src/engine/locks/exclusive.ts';

const [url = '', lockId = ''] = process.argv.slice(2);
const database = await Database.connect({ url });
await exclusively(database, BigInt(lockId), (section) =>
  section.transaction(async (tx) => {
    await tx.query(`insert into marks values ('killed')`);
    writeSync(1, 'in\n');
    await new Promise(() => setInterval(() => {}, 1000));
  }),
);
