import fc from 'fast-check';
import { expect, test } from 'vitest';
import { engine } from '../../support/engine.ts';
import { history } from './model/steps.ts';
import { World } from './model/world.ts';

/**
 * Random histories against a plain model of the engine: several queues and priorities, deep lanes, writers whose
 * transactions stay open, crashes (isolated or not), answers that are lost, and people who cancel, retry, redrive, unblock
 * and pause. After every step the tables must say what the model says, and `tallyman.check()` nothing. At the end
 * everything is drained, and every job must have ended, once.
 */
test('ENG-2, ENG-4, ENG-5, ENG-10, ENG-16, ENG-17, ENG-20, LANE-1, LANE-3, LANE-4, LANE-8: random histories end as the model says', async () => {
  const bundle = await engine();
  const runs = Number(process.env.MODEL_RUNS ?? 100);
  const seed = process.env.MODEL_SEED ? { seed: Number(process.env.MODEL_SEED) } : {};
  const result = await fc.check(
    fc.asyncProperty(history, async (steps) => (await World.create(bundle)).run(steps)),
    {
      numRuns: runs,
      interruptAfterTimeLimit: 150_000,
      endOnFailure: process.env.MODEL_SHRINK === 'no',
      ...seed,
    },
  );
  if (result.failed) console.error(String(result.errorInstance));
  expect(fc.defaultReportMessage(result) ?? 'as the model says').toBe('as the model says');
}, 240_000);
