import fc from 'fast-check';
import type { Isolation } from '../../../../src/engine/jobs/claim.ts';
import type { Priority } from '../../../../src/engine/jobs/kind.ts';

export const queues = ['red', 'green', 'blue'] as const;
/** How many jobs of a lane a claim hands out. */
export const laneJobs = 3;
export const workers = 3;
export const writers = 2;

/** Where a new job goes. Lanes 0 to 3 exist; anything above means no lane. */
export interface Place {
  readonly lane: number;
  readonly queue: number;
  readonly priority: Priority;
  readonly maxAttempts: number;
}

export type FailureSort = 'again' | 'later' | 'permanent' | 'hand back';

/** One step of a history. Numbers choose among what there is at the time (modulo how many there are). */
export type Step =
  | (Place & {
      readonly do: 'enqueue';
      readonly key: number;
      readonly copies: number;
      readonly isDelayed: boolean;
    })
  | {
      readonly do: 'claim';
      readonly w: number;
      readonly total: number;
      readonly late: boolean;
      readonly isolated: Isolation | undefined;
      readonly queues: number;
      readonly isAnswerLost: boolean;
    }
  | {
      readonly do: 'complete';
      readonly w: number;
      readonly nth: number;
      readonly count: number;
      readonly letGo: 'no' | 'more' | 'rest';
      readonly isAnswerLost: boolean;
    }
  | {
      readonly do: 'fail';
      readonly w: number;
      readonly nth: number;
      readonly sort: FailureSort;
      readonly isAnswerLost: boolean;
    }
  | { readonly do: 'start' | 'fetch' | 'release'; readonly w: number; readonly nth: number }
  | { readonly do: 'release unknown' | 'leave' | 'start suspects'; readonly w: number }
  | { readonly do: 'crash'; readonly w: number; readonly isDelayed: boolean }
  | { readonly do: 'cancel' | 'retry' | 'cancel and retry'; readonly nth: number }
  | { readonly do: 'redrive'; readonly nth: number; readonly toHead: boolean }
  | { readonly do: 'unblock'; readonly lane: number }
  | (Place & { readonly do: 'write'; readonly writer: number })
  | { readonly do: 'end write'; readonly writer: number; readonly isCommit: boolean }
  | { readonly do: 'pause' | 'resume'; readonly queue: number }
  | { readonly do: 'wait' }
  | { readonly do: 'stale' };

const below = (count: number) => fc.integer({ min: 0, max: count - 1 });
/** The first worker does most, so that it mostly has something to do it with. */
const w = fc.constantFrom(0, 0, 0, 1, 1, 2);
const nth = below(40);
/** True once in `n` times or so; shrinks to false. */
const rarely = (n: number) => below(n).map((i) => i === n - 1);
const place = {
  lane: below(6),
  queue: below(queues.length),
  priority: fc.constantFrom<Priority>(2, 2, 2, 1),
  maxAttempts: fc.constantFrom(4, 2, 1, 5),
};

const weighted: readonly (readonly [weight: number, arbitrary: fc.Arbitrary<Step>])[] = [
  [
    10,
    fc.record({
      do: fc.constant('enqueue'),
      ...place,
      key: below(24),
      copies: fc.constantFrom(1, 1, 2, 5),
      isDelayed: rarely(5),
    }),
  ],
  [
    16,
    fc.record({
      do: fc.constant('claim'),
      w,
      total: fc.integer({ min: 1, max: 6 }),
      late: fc.boolean(),
      isolated: fc.constantFrom(undefined, undefined, undefined, 'suspect', 'suspect', 'alone'),
      queues: fc.constantFrom(7, 7, 7, 1, 2, 4, 3, 6),
      isAnswerLost: rarely(12),
    }),
  ],
  [
    14,
    fc.record({
      do: fc.constant('complete'),
      w,
      nth,
      count: below(5),
      letGo: fc.constantFrom('rest', 'more', 'no', 'rest'),
      isAnswerLost: rarely(3),
    }),
  ],
  [
    10,
    fc.record({
      do: fc.constant('fail'),
      w,
      nth,
      sort: fc.constantFrom('again', 'again', 'later', 'permanent', 'hand back'),
      isAnswerLost: fc.boolean(),
    }),
  ],
  [4, fc.record({ do: fc.constant('start'), w, nth })],
  [4, fc.record({ do: fc.constant('start suspects'), w })],
  [4, fc.record({ do: fc.constant('fetch'), w, nth })],
  [2, fc.record({ do: fc.constant('release'), w, nth })],
  [2, fc.record({ do: fc.constantFrom('release unknown', 'release unknown', 'leave'), w })],
  [6, fc.record({ do: fc.constant('crash'), w, isDelayed: rarely(3) })],
  [5, fc.record({ do: fc.constantFrom('cancel', 'retry', 'cancel and retry'), nth })],
  [4, fc.record({ do: fc.constant('redrive'), nth, toHead: fc.boolean() })],
  [2, fc.record({ do: fc.constant('unblock'), lane: below(4) })],
  [5, fc.record({ do: fc.constant('write'), writer: below(writers), ...place })],
  [
    4,
    fc.record({ do: fc.constant('end write'), writer: below(writers), isCommit: rarely(4).map((x) => !x) }),
  ],
  [2, fc.record({ do: fc.constantFrom('pause', 'resume', 'resume'), queue: below(queues.length) })],
  [3, fc.record({ do: fc.constant('wait') })],
  [2, fc.record({ do: fc.constant('stale') })],
] as readonly (readonly [number, fc.Arbitrary<Step>])[];

const step = fc.oneof(...weighted.map(([weight, arbitrary]) => ({ weight, arbitrary })));

export const history = fc.array(step, { minLength: 50, maxLength: 140, size: 'max' });
