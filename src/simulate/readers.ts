/**
 * Simulated RFID readers at dock doors. The same options make the same messages in the same order, on every machine; only
 * the start time, and so the times in the messages, comes from the caller.
 *
 * The readers are unreliable on purpose: they send a message again if they got no acknowledgement, and some messages arrive
 * late, after younger ones.
 */
import { deviceName, type Message, messageOf, type SentRead, shapeOf } from './messages.ts';
import { type Sighting, sightings } from './plant.ts';
import { Random } from './random.ts';

export interface ReaderOptions {
  readonly seed: number;
  /** Default 6. */
  readonly devices?: number;
  /** Default 60. */
  readonly baskets?: number;
  /** The serial of the first basket: other numbers, other baskets. Default 1. */
  readonly firstBasket?: number;
  /** Reads a second, of all devices together. Default 100. */
  readonly rate?: number;
  /** The share of messages that is sent once more. Default 0.05. */
  readonly duplicates?: number;
  /** The share of messages that comes after younger ones: most of them by a few, one in ten by many. Default 0.05. */
  readonly outOfOrder?: number;
  /** The share of messages that arrives broken off in the middle. Default 0. */
  readonly damaged?: number;
}

/** A message to send. */
export interface Transmission {
  readonly topic: string;
  readonly device: string;
  /** Empty: it is damaged. */
  readonly reads: readonly SentRead[];
  /** It was sent before. */
  readonly again: boolean;
  /** When it is sent, in microseconds since the beginning. Never decreases. */
  readonly at: number;
  readonly payload: (beganAt: number) => string;
}

export const readerDefaults = {
  devices: 6,
  baskets: 60,
  firstBasket: 1,
  rate: 100,
  duplicates: 0.05,
  outOfOrder: 0.05,
  damaged: 0,
} as const;

const topicOf = (device: string): string => `zebra/fx/${device}/reads`;

export const deviceNames = (devices: number): string[] =>
  Array.from({ length: devices }, (_, door) => deviceName(door));

/** Reads that a reader collects before it sends. */
const mostGathered = 5;
/** It waits for no more than this, in microseconds. */
const patience = 400_000;

/** The messages for the broker, in order, without end. */
export function* transmissions(options: ReaderOptions): Generator<Transmission, never> {
  const given = { ...readerDefaults, ...options };
  // Two random sources: how messages travel does not change where baskets go.
  const trouble = new Random(given.seed ^ 0x5eed);
  /** Delayed messages, and when each is released, counted in messages. */
  let held: { readonly message: Message; readonly again: boolean; readonly due: number }[] = [];
  let count = 0;
  for (const { message, at } of gathered(given)) {
    count += 1;
    const late = trouble.chance(given.outOfOrder);
    if (late) {
      const by = trouble.chance(0.1) ? 50 + trouble.below(150) : 1 + trouble.below(10);
      held.push({ message, again: false, due: count + by });
    } else {
      yield sending(message, at, false);
    }
    if (trouble.chance(given.damaged)) yield broken(message, at, trouble);
    if (trouble.chance(given.duplicates)) {
      // After the original, which may itself be late.
      const first = late ? (held.at(-1)?.due ?? count) : count;
      held.push({ message, again: true, due: first + 1 + trouble.below(30) });
    }
    for (const next of held) if (next.due <= count) yield sending(next.message, at, next.again);
    held = held.filter(({ due }) => due > count);
  }
  throw new Error('the plant never runs out of reads');
}

/** Messages in the order in which they are made. */
function* gathered(options: Required<ReaderOptions>): Generator<{ message: Message; at: number }> {
  const random = new Random(options.seed);
  const numbers = new Map<number, number>();
  const waiting = new Map<number, Sighting[]>();
  const wanted = new Map<number, number>();
  const send = (door: number, at: number): { message: Message; at: number } => {
    const batch = waiting.get(door) ?? [];
    waiting.delete(door);
    const first = (numbers.get(door) ?? 0) + 1;
    numbers.set(door, first + batch.length - 1);
    return { message: messageOf(door, batch, first), at };
  };
  for (const seen of sightings({ ...options, random, doors: options.devices })) {
    // Send reads that have waited long enough first.
    for (const [door, batch] of waiting)
      if (seen.at - (batch[0]?.at ?? seen.at) > patience) yield send(door, seen.at);
    const batch = waiting.get(seen.door) ?? [];
    batch.push(seen);
    if (batch.length === 1) {
      waiting.set(seen.door, batch);
      wanted.set(seen.door, shapeOf(seen.door) === 'single' ? 1 : 1 + random.below(mostGathered));
    }
    if (batch.length >= (wanted.get(seen.door) ?? 1)) yield send(seen.door, seen.at);
  }
}

function sending({ device, reads, payload }: Message, at: number, again: boolean): Transmission {
  return { topic: topicOf(device), device, reads, again, at, payload };
}

/** The beginning of a message, as from a reader that loses power; long enough to differ from all others. */
function broken({ device, payload }: Message, at: number, random: Random): Transmission {
  const kept = 0.5 + 0.45 * random.next();
  return {
    topic: topicOf(device),
    device,
    reads: [],
    again: false,
    at,
    payload: (beganAt) => {
      const whole = payload(beganAt);
      return whole.slice(0, Math.floor(whole.length * kept));
    },
  };
}
