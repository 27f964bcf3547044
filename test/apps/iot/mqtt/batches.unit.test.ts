import { expect, test } from 'vitest';
import { Intake, type IntakeOptions, type Line, type OnBatch } from '../../../../src/apps/iot/mqtt/intake.ts';
import type { Delivery } from '../../../../src/apps/iot/mqtt/message.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';

const line: Line = { acknowledge: () => {}, pause: () => {}, resume: () => {} };
const delivery = (packetId: number, reads: number): Delivery => ({
  packetId,
  message: {
    topic: 't',
    payload: Buffer.alloc(99, String(reads)),
    qos: 2,
    duplicate: false,
    retained: false,
    receivedAt: new Date(),
  },
});

/** The sizes of the batches in which messages with so many reads each are handed on. */
async function batchesOf(reads: readonly number[], limits: Partial<IntakeOptions>): Promise<number[]> {
  const sizes: number[] = [];
  const onBatch: OnBatch = async (messages) => void sizes.push(messages.length);
  const intake = new Intake({
    handlerOf: () => onBatch,
    deadLetter: undefined,
    readsIn: ({ payload }) => Number(String.fromCharCode(payload[0] ?? 48)),
    maxBatch: 500,
    maxBatchBytes: 1_000_000,
    maxBatchReads: 1_000_000,
    maxMessages: 1000,
    maxBytes: 1_000_000,
    logger: silentLogger,
    ...limits,
  });
  for (const [i, count] of reads.entries()) intake.receive(line, delivery(i + 1, count));
  while (intake.inFlight > 0) await new Promise((resolve) => setImmediate(resolve));
  return sizes;
}

test('MQTT-12: a batch is bounded by reads, by bytes and by messages; a message that is more goes alone', async () => {
  expect(await batchesOf([3, 3, 3, 9, 1, 1, 1], { maxBatchReads: 7 })).toEqual([2, 1, 1, 3]);
  expect(await batchesOf([1, 1, 1, 1, 1], { maxBatchBytes: 200 })).toEqual([2, 2, 1]);
  expect(await batchesOf([1, 1, 1, 1, 1], { maxBatchBytes: 50 })).toEqual([1, 1, 1, 1, 1]);
  expect(await batchesOf([1, 1, 1, 1, 1], { maxBatch: 3 })).toEqual([3, 2]);
  expect(await batchesOf([1, 1, 1, 1, 1], {})).toEqual([5]);
});
