/**
 * Works on blobs until it is killed. Prints a line for each step that was finished.
 *
 *   stage    one upload that never ends; prints how many bytes were taken
 *   publish  blob after blob, several at once; prints the name of each when it is published
 *   remove   every blob there is, several at once; prints the digest of each when it is removed
 *   ask      removes one blob, and never hears whether it is needed; prints the digest when it is asked
 */
import { bytesNamed, publish } from './bytes.ts';
import { openBlobs, type Place } from './storage.ts';

export interface Task {
  readonly place: Place;
  readonly work: 'stage' | 'publish' | 'remove' | 'ask';
  readonly size: number;
  readonly name: string;
  /** To `ask` about. */
  readonly digest?: string;
}

const { place, work, size, name, digest = '' } = JSON.parse(process.argv[2] ?? '{}') as Task;
const blobs = await openBlobs(place);
const say = (line: string): void => void process.stdout.write(`${line}\n`);

async function* endless(): AsyncIterable<Uint8Array> {
  for (let taken = 0; ; taken += size) {
    yield bytesNamed(`${name} ${taken}`, size);
    say(String(taken + size));
  }
}

if (work === 'stage')
  await blobs.stage(endless(), { maxBytes: 1024 ** 4, resume: { uploadId: name, from: 0 } });

if (work === 'publish')
  await Promise.all(
    [1, 2, 3, 4].map(async (caller) => {
      for (let n = 1; ; n += 1) {
        await publish(blobs, bytesNamed(`${name}-${caller}-${n}`, size));
        say(`${name}-${caller}-${n}`);
      }
    }),
  );

if (work === 'remove') {
  const found = blobs.olderThan(new Date(Date.now() + 3_600_000))[Symbol.asyncIterator]();
  await Promise.all(
    [1, 2, 3, 4].map(async () => {
      for (let next = await found.next(); !next.done; next = await found.next())
        if (await blobs.remove(next.value, async () => false)) say(next.value);
    }),
  );
}

if (work === 'ask') {
  // Something that keeps the process alive.
  setInterval(() => {}, 1000);
  await blobs.remove(digest, () => {
    say(digest);
    return new Promise(() => {});
  });
}
