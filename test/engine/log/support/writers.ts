/**
 * Writers of one stream, each with a connection and a Log of its own; made to be killed. Every second one appends in
 * transactions of its own, which hold their offsets for a while before they commit or roll back. A writer counts its entries and
 * goes on where the process before it was killed, with the entry that got no answer. Ends after SIGTERM, when none is without one.
 *
 *   ready                            it hears SIGTERM
 *   answered <writer> <n> <offset>
 *   open <writer> <n>                the offset is taken, and the transaction is not committed yet
 *   rolled-back <writer> <n>
 */
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database } from '../../../../src/engine/database/database.ts';
import { Log } from '../../../../src/engine/log/log.ts';
import { randomOf } from '../../../support/random.ts';

/** By number: the first entry that was not answered yet. */
export type Writers = Readonly<Record<number, number>>;

const [url = '', writers = '{}', seed = ''] = process.argv.slice(2);
const random = randomOf(Number(seed));
let isStopping = false;
process.on('SIGTERM', () => {
  isStopping = true;
});
// Not through a stream, which would hold it back: what is written here is in the pipe when we are killed.
const say = (line: string): void => void writeSync(1, `${line}\n`);

async function write(writer: number, from: number): Promise<void> {
  const database = await Database.connect({ url, poolSize: 1 });
  const log = new Log(database);
  const within = (n: number, key: string, isGivenUp = false) =>
    database.transaction(async (tx) => {
      const [appended] = await log.appendWithin(tx, 'facts', [{ key, payload: { key } }]);
      if (!appended) throw new Error('no answer');
      say(`open ${writer} ${n}`);
      await sleep(random.between(0, 8));
      if (isGivenUp) throw new Error('given up');
      return appended;
    });
  // At least the entry without an answer.
  for (let n = from; n === from || !isStopping; n += 1) {
    if (writer % 2 === 0 && random.chance(0.1))
      await within(n, `never ${writer} ${n}`, true).catch((error: Error) => {
        if (error.message !== 'given up') throw error;
        say(`rolled-back ${writer} ${n}`);
      });
    const key = `${writer} ${n}`;
    const { offset } = await (writer % 2 === 0
      ? within(n, key)
      : log.append('facts', { key, payload: { key } }));
    say(`answered ${writer} ${n} ${offset}`);
  }
  await log.stop();
  await database.close();
}

say('ready');
await Promise.all(
  Object.entries(JSON.parse(writers) as Writers).map(([writer, from]) => write(Number(writer), from)),
);
