// The module that worker.test.ts gives to `tallyman worker`.
import { setTimeout as sleep } from 'node:timers/promises';
import { defineKind } from '../../src/index.ts';

export const slow = defineKind<{ ms: number }>({
  name: 'slow',
  public: true,
  handler: async ({ ms }) => {
    console.log(`began ${ms}`);
    await sleep(ms);
    console.log(`ended ${ms}`);
  },
});

const stubborn = defineKind<{ ms: number }>({
  name: 'stubborn',
  queue: 'stubborn',
  handler: async ({ ms }) => {
    console.log(`began ${ms}`);
    await sleep(ms);
  },
});

export const somethingElse = 42;
export default [slow, stubborn];
