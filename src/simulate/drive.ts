import { pause } from '../engine/resilience/deadline.ts';
import type { Publisher } from './publisher.ts';
import { type ReaderOptions, type Transmission, transmissions } from './readers.ts';
import { Truth } from './truth.ts';

export interface DriveOptions extends ReaderOptions {
  readonly publisher: Pick<Publisher, 'send'>;
  readonly signal: AbortSignal;
  /** Stop after this many different reads. Default: never. */
  readonly count?: number;
  /** Called with each message just before it is sent; the function it returns is called when the broker has acknowledged it. */
  readonly onSend?: (transmission: Transmission, beganAt: number) => (() => void) | undefined;
  /** Default: a new one. */
  readonly truth?: Truth;
}

/** A sender that is late by more than this (a laptop that slept) does not catch up. */
const mostBehindMs = 2000;

/** Sends the readers' messages, each at its time, until the signal fires or the count is reached. */
export async function driveReaders(options: DriveOptions): Promise<Truth> {
  const { publisher, signal, count = Infinity, truth = new Truth(), onSend } = options;
  const beganAt = Date.now();
  /** The readers' clocks continue without a jump: a message that is sent again must be the same. */
  let pausedMs = 0;
  for (const transmission of transmissions(options)) {
    if (signal.aborted || truth.figures.distinctReads >= count) break;
    const ahead = beganAt + pausedMs + transmission.at / 1000 - Date.now();
    if (ahead < -mostBehindMs) pausedMs -= ahead;
    else if (ahead > 1) await pause(ahead, signal);
    if (signal.aborted) break;
    if (transmission.reads.length === 0) truth.damaged();
    else truth.sent(transmission.reads, transmission.again);
    const onAcknowledged = onSend?.(transmission, beganAt);
    await publisher.send(transmission.topic, transmission.payload(beganAt), onAcknowledged);
  }
  return truth;
}
