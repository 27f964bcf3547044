import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { expect, onTestFinished, test } from 'vitest';
import { digestOf, fileOf, hasBytes, publish } from './bytes.ts';
import { describeBlobs } from './conformance.ts';
import { files, openBlobs } from './storage.ts';

/** BND-5: the storage of objects in files does what every one must. */
describeBlobs('objects in files', files);

test('BND-5: bytes that are put again replace what is left of a damaged file', async () => {
  const { place, stop } = await files();
  onTestFinished(stop);
  const blobs = await openBlobs(place);
  const bytes = randomBytes(1000);
  await publish(blobs, bytes);
  const path = fileOf(place.kind === 'files' ? place.folder : '', digestOf(bytes));
  for (const left of [randomBytes(1000), randomBytes(10)]) {
    await writeFile(path, left);
    await publish(blobs, bytes);
    expect(await hasBytes(blobs, bytes)).toBe(true);
  }
});
