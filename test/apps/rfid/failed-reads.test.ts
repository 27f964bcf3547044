import { describe, expect, test } from 'vitest';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { processRead, retryAsJobs } from '../../../src/apps/rfid/failed-reads.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { until } from '../../support/engine.ts';
import { movements, type Plant, plant, read, tag, tenantId } from './support.ts';

/** A plant whose failed reads become jobs. */
async function retrying(): Promise<
  Plant & { retrying: TagReadProcessor; kind: ReturnType<typeof processRead> }
> {
  const bundle = await plant();
  const { tallyman, devices, processor } = bundle;
  const kind = { ...processRead(processor), backoff: () => 1 };
  const { database } = tallyman;
  return {
    ...bundle,
    kind,
    retrying: new TagReadProcessor({ database, devices, onFailed: retryAsJobs(tallyman, kind) }),
  };
}

describe('reads that fail', () => {
  test('RFID-8: are tried five times, then dead letters; a redrive mends them once the device is known', async () => {
    const bundle = await retrying();
    const { tallyman, work, kind, at } = bundle;
    await bundle.retrying.processTagReads([read('D', 5), read('A', 1), read('D', 5)]);
    await bundle.retrying.processTagReads([read('D', 5)]);
    await work({ kinds: [kind], queues: ['rfid'] });
    await until('it is a dead letter', async () => (await tallyman.deadLetters.list()).items.length === 1);
    const [letter] = (await tallyman.deadLetters.list()).items;
    expect(letter).toMatchObject({
      kind: 'rfid.process-read',
      attempts: 5,
      lastError: { code: 'UNKNOWN_DEVICE', message: expect.stringMatching(/device "D" is not known/) },
      payload: { deviceId: 'D', epc: tag(1) },
    });
    expect(await movements(bundle)).toEqual(['→A']);

    await putDevice(tallyman.database, { tenantId, serial: 'D', locationId: at.B ?? null });
    bundle.devices.drop();
    await tallyman.deadLetters.redrive(letter?.id ?? '');
    await until('it has moved', async () => (await movements(bundle)).length === 2);
    expect(await movements(bundle)).toEqual(['→A', 'A→B']);
  });

  test('RFID-5: a damaged tag is a dead letter after one attempt, and holds nobody up', async () => {
    const { retrying: processor, tallyman, work, kind } = await retrying();
    const bad = [
      read('A', 1, { epc: 'E2801160600002054D7A1B3C' }),
      read('A', 2, { eventTimestamp: '1970-01-01T00:00:00Z' }),
      read('A\0', 3),
      read('A', 4, { epc: 7 as unknown as string, zbTagReadId: 'x' }),
    ];
    const results = await processor.processTagReads([...bad, read('A', 5)]);
    expect(results.map((r) => r.success)).toEqual([false, false, false, false, true]);
    await work({ kinds: [kind], queues: ['rfid'] });
    await until('all are dead letters', async () => (await tallyman.deadLetters.list()).items.length === 4);
    for (const letter of (await tallyman.deadLetters.list()).items) expect(letter.attempts).toBe(1);
  });

  test('RFID-8: a failure and its job are committed together or not at all', async () => {
    const { tallyman, devices, kind, rows } = await retrying();
    const enqueue = retryAsJobs(tallyman, kind);
    const processor = new TagReadProcessor({
      database: tallyman.database,
      devices,
      onFailed: async (tx, failures) => {
        await enqueue(tx, failures);
        throw new Error('the server went away');
      },
    });
    await expect(processor.processTagReads([read('D', 1)])).rejects.toThrow('went away');
    expect(
      await rows('select 1 from tallyman.jobs union all select 1 from rfid.tag_read_processings'),
    ).toEqual([]);
  });
});
