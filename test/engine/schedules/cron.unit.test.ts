import { Cron } from 'croner';
import { expect, test } from 'vitest';
import { parseCron } from '../../../src/engine/schedules/cron.ts';

const after = new Date('2026-03-01T12:34:56Z');

test.each([
  '* * * * *',
  '* * * * * *',
  '30 3 * * *',
  '  */5   9-17 * * MON-FRI ',
  '0 0 29 2 *',
  '0 0 0 29 2 +MON',
  '0 0 12 ? * 6L',
  '0 0 0 L * *',
  '0 0 0 15W * *',
  '0 0 0 * * MON#2',
  '@daily',
  '@weekly',
  '0 0 0 1 1 * 2090',
  '0 0 0 1 1 * 2500',
  '0 0 0 1 1 * 2028-2030,2040',
  '0 0 0 1 1 * */7',
  '0 0 0 1 1 * *',
  '59 59 23 31 12 * 2026',
])('ENG-13: "%s" comes when it always came', (cron) => {
  for (const timezone of ['UTC', 'Europe/Berlin', 'Pacific/Kiritimati', 'Pacific/Pago_Pago'])
    for (const from of [after, new Date('2026-12-31T23:59:59Z'), new Date('2027-01-01T00:00:00Z')])
      expect(parseCron('s', cron, timezone).nextRun(from)).toEqual(
        new Cron(cron, { timezone, paused: true }).nextRun(from),
      );
});

test.each(['0 0 0 1 * +MON#2', '0 0 0 1 * +MON#2 2026-9999', '0 0 0 1 * +MON#2 *'])(
  'SEC-5: to find that "%s" never comes takes a part of the time that croner takes',
  (cron) => {
    const timed = (find: () => Date | null): number => {
      const began = performance.now();
      expect(find()).toBeNull();
      return performance.now() - began;
    };
    const timezone = 'Europe/Berlin';
    const rhythm = parseCron('s', cron, timezone);
    const ours = Math.min(...Array.from({ length: 5 }, () => timed(() => rhythm.nextRun(after))));
    const unbounded = timed(() => new Cron('0 0 0 1 * +MON#2', { timezone, paused: true }).nextRun(after));
    expect(ours * 3).toBeLessThan(unbounded);
  },
);

test('ENG-13: a cron whose years are past has no next time', () => {
  expect(parseCron('s', '0 0 0 1 1 * 2020', 'UTC').nextRun(after)).toBeNull();
});
