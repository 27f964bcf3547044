import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until it is so; the error says what was waited for. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  ms = 60_000,
): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms in vain until ${what}`);
    await sleep(10);
  }
}
