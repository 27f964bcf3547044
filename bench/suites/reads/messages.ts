/** The stream as readers send it: messages of a few reads, each of one door. */
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import { readsOf } from './stream.ts';
import type { Size } from './workloads.ts';

export const READS_A_MESSAGE = 5;
/** Reads that are sorted by door at a time. */
const BLOCK = 2000;

export interface Message {
  readonly topic: string;
  readonly payload: string;
}

export function* messagesOf(size: Size): Generator<Message> {
  for (let from = 0; from < size.reads; from += BLOCK) {
    const block = readsOf(size, from, Math.min(from + BLOCK, size.reads));
    for (const [deviceId, reads] of Map.groupBy(block, (read) => read.deviceId))
      for (let i = 0; i < reads.length; i += READS_A_MESSAGE)
        yield {
          topic: `zebra/fx/${deviceId}/reads`,
          payload: JSON.stringify(reads.slice(i, i + READS_A_MESSAGE).map(itemOf)),
        };
  }
}

const itemOf = ({ epc, eventTimestamp }: TagRead, eventNum: number) => ({
  type: 'SIMPLE',
  timestamp: eventTimestamp,
  data: { eventNum, format: 'epc', idHex: epc, antenna: 1, peakRssi: -52, reads: 1 },
});
