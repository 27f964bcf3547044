import { truncate } from '../cli/output/text.ts';
import { type Balance, balances } from './books.ts';

const n = (value: number): string => value.toLocaleString('en');

/** The live line; short words where the terminal is narrow. */
export function statusLine(b: Balance, held: number, perSecond: number, width = Infinity): string {
  const rate = perSecond.toFixed(perSecond < 10 ? 1 : 0);
  const long =
    `enqueued ${n(b.enqueued)} · done ${n(b.done)} · in hand ${n(held)} · waiting for retry ${n(b.retrying)} · ` +
    `dead letters ${n(b.dead)} · ${rate} jobs/s · order violations ${n(b.disordered)} · twice ${n(b.twice)} · lost ${n(b.lost)}`;
  if (long.length <= width) return long;
  const short =
    `in ${n(b.enqueued)} done ${n(b.done)} hand ${n(held)} retry ${n(b.retrying)} dead ${n(b.dead)} · ${rate}/s · ` +
    `disorder ${n(b.disordered)} twice ${n(b.twice)} lost ${n(b.lost)}`;
  return truncate(short, width);
}

/** What was done, for whoever comes back to the terminal. */
export function summary(b: Balance, ranMs: number, why: string): string {
  const waiting = b.queued + b.retrying;
  const rows: [string, number, string][] = [
    ['enqueued', b.enqueued, 'since this database was made'],
    ['done', b.done, ''],
    ['waiting', waiting, waiting > 0 ? 'the next start goes on with them' : ''],
    ['dead letters', b.dead, b.dead > 0 ? 'npm run tallyman -- dead-letters list' : ''],
    ['ended otherwise', b.ended, b.ended > 0 ? 'failed for good, cancelled or discarded' : ''],
    ['order violations', b.disordered, ''],
    ['twice', b.twice, ''],
    ['lost', b.lost, ''],
  ];
  const width = Math.max(...rows.map(([, value]) => n(value).length));
  return [
    `Stopped after ${(ranMs / 1000).toFixed(1)} s: ${why}.`,
    ...rows.map(([name, value, note]) =>
      `  ${name.padEnd(16)}  ${n(value).padStart(width)}  ${note}`.trimEnd(),
    ),
    balances(b)
      ? 'The books balance.'
      : 'THE BOOKS DO NOT BALANCE: enqueued must be done + waiting + dead letters + ended otherwise, and the last three 0.',
  ].join('\n');
}

export function welcome(where: Readonly<Record<string, string>>, before: Balance): string {
  const waiting = before.queued + before.retrying;
  const left =
    before.enqueued === 0
      ? []
      : [`  before      ${n(before.done)} done by earlier runs, ${n(waiting)} left for this one`];
  return [
    'Tallyman demo: pallets at 12 dock doors (each door in order), labels, and a carrier that fails now and then.',
    ...Object.entries(where).map(([name, value]) => `  ${name.padEnd(10)}  ${value}`),
    ...left,
    '  look        npm run tallyman -- jobs list',
    '              npm run tallyman -- dead-letters list',
    '              npm run tallyman -- lanes list',
    '  stop        Ctrl-C',
    '',
  ].join('\n');
}
