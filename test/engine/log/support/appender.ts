/** Appends without end and says each entry that was acknowledged, one a line; made to be killed. */
import { writeSync } from 'node:fs';
import { Database } from '../../../../src/engine/database/database.ts';
import { Log } from '../../../../src/engine/log/log.ts';

const [url = '', name = ''] = process.argv.slice(2);
const log = new Log(await Database.connect({ url }));
let count = 0;
await Promise.all(
  Array.from({ length: 32 }, async () => {
    for (;;) {
      const key = `${name}-${count++}`;
      const { offset } = await log.append('facts', { key, payload: { key } });
      // Not through a stream, which would hold it back: what is written here is in the pipe when we are killed.
      writeSync(1, `${offset} ${key}\n`);
    }
  }),
);
