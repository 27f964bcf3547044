import { count, truncate } from '../../../host/cli/output/text.ts';
import { basketTag } from '../../../simulate/tags.ts';
import { type Balance, balances, type Run } from './books.ts';

const n = (value: number): string => value.toLocaleString('en');

/** The live line; shorter words on a narrow terminal. */
export function statusLine(
  b: Balance,
  perSecond: number,
  kills: number | undefined,
  width = Infinity,
): string {
  const rate = perSecond.toFixed(perSecond < 10 ? 1 : 0);
  const verdict = balances(b) ? 'the books balance' : 'THE BOOKS DO NOT BALANCE';
  const long = [
    `sent ${n(b.sent)}`,
    `counted ${n(b.counted)}`,
    `duplicates dropped ${n(b.dropped)}`,
    `in flight ${n(b.inFlight)}`,
    `movements ${n(b.movements)}/${n(b.movementsExpected)}`,
    `${rate} reads/s`,
    ...(kills === undefined ? [] : [`killed ${n(kills)}×`]),
    `lost ${n(b.lost)}`,
    `twice ${n(b.twice)}`,
    verdict,
  ].join(' · ');
  if (long.length <= width) return long;
  const short =
    `sent ${n(b.sent)} counted ${n(b.counted)} dropped ${n(b.dropped)} flying ${n(b.inFlight)} · ` +
    `lost ${n(b.lost)} twice ${n(b.twice)} · ${balances(b) ? 'balanced' : 'NOT BALANCED'}`;
  return truncate(short, width);
}

/** A summary of the run. */
export function summary(b: Balance, ranMs: number, why: string, kills: number | undefined): string {
  const again = b.sent - b.distinct;
  const redelivered = b.dropped - again;
  const dropped = [
    ...(again > 0 ? [`${n(again)} sent again by the readers`] : []),
    ...(redelivered > 0 ? [`${n(redelivered)} delivered again by the broker`] : []),
  ].join(', ');
  const rows: [string, number, string][] = [
    ['reads sent', b.sent, `${n(b.distinct)} different ones, of this run`],
    ['counted', b.counted, ''],
    ['duplicates dropped', b.dropped, dropped],
    ['in flight', b.inFlight, b.inFlight > 0 ? 'the next start goes on with them' : ''],
    ['lost', b.lost, ''],
    ['twice', b.twice, ''],
    ['baskets', b.baskets, `${n(b.basketsExpected)} expected`],
    ['movements', b.movements, `${n(b.movementsExpected)} expected`],
    ['baskets astray', b.astray, ''],
    [
      'dead letters',
      b.deadLetters,
      b.damaged > 0
        ? `of ${count(b.damaged, 'damaged message')}: npm run tallyman -- dead-letters list`
        : 'no message was damaged',
    ],
    ...(kills === undefined ? [] : [['processor killed', kills, 'times'] as [string, number, string]]),
  ];
  const width = Math.max(...rows.map(([, value]) => n(value).length));
  return [
    `Stopped after ${(ranMs / 1000).toFixed(1)} s: ${why}.`,
    ...rows.map(([name, value, note]) =>
      `  ${name.padEnd(18)}  ${n(value).padStart(width)}  ${note}`.trimEnd(),
    ),
    balances(b)
      ? 'The books balance.'
      : 'THE BOOKS DO NOT BALANCE: different reads must be counted + in flight, lost, twice and astray 0, the rest as expected.',
  ].join('\n');
}

export interface Surroundings {
  readonly database: string;
  readonly broker: string;
  readonly api: string;
  readonly doors: number;
  readonly rate: number;
  readonly seed: number;
  readonly chaos: boolean;
}

export function welcome(where: Surroundings, run: Run): string {
  const { runs, reads, baskets } = run.before;
  const lines: [string, string][] = [
    ['database', where.database],
    ['broker', where.broker],
    [
      'readers',
      `${where.doors} dock doors on zebra/fx/dock-…/reads, ${n(run.baskets)} baskets, ${n(where.rate)} reads a second, seed ${where.seed}`,
    ],
    ...(where.chaos
      ? [
          ['chaos', 'the processor is a process of its own, killed and restarted all the time'] as [
            string,
            string,
          ],
        ]
      : []),
    ['api', `${where.api}/v1, try it at ${where.api}/v1/docs`],
    ...(runs > 0
      ? [
          [
            'before',
            `${n(reads)} reads of ${n(baskets)} baskets, by ${n(runs)} earlier ${runs === 1 ? 'run' : 'runs'}`,
          ] as [string, string],
        ]
      : []),
    ['look', `npm run tallyman -- rfid baskets show ${basketTag(run.firstBasket)}`],
    ['stop', 'Ctrl-C'],
  ];
  return [
    'Tallyman demo: RFID readers at dock doors see baskets pass. They repeat themselves and come late;',
    'each read is to be counted once, and each movement of a basket found, whatever happens.',
    ...lines.map(([name, value]) => `  ${name.padEnd(8)}  ${value}`),
    '',
  ].join('\n');
}
