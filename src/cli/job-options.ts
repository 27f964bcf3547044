import { type Command, InvalidArgumentError } from 'commander';
import { parseInstant } from '../engine/instant.ts';
import type { Priority } from '../engine/jobs/kind.ts';
import { wholeNumber } from '../host/cli/options.ts';

/** Where a job goes, and how often it is tried. What is not given comes from the kind. */
export interface JobPlace {
  readonly queue?: string;
  readonly priority?: Priority;
  readonly lane?: string;
  readonly maxAttempts?: number;
}

export const withPlace = (command: Command): Command =>
  command
    .option('-q, --queue <name>', "into this queue (default: the kind's)")
    .option(
      '-p, --priority <level>',
      "0 critical, 1 high, 2 normal, 3 low (default: the kind's)",
      wholeNumber(0, 3),
    )
    .option('-l, --lane <key>', 'into this lane')
    .option(
      '--max-attempts <count>',
      "runs before it is a dead letter (default: the kind's)",
      wholeNumber(1, 1000),
    );

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const tenYearsMs = 315_360_000_000;

/** `0s`, `5m`, `2d`: a delay may be none at all, and longer than the wait of a command. */
export function delayMs(text: string): number {
  const [, amount, unit = ''] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  const ms = Number(amount) * (units[unit] ?? Number.NaN);
  if (!(ms <= tenYearsMs)) throw new InvalidArgumentError('Expected a time such as 30s, 5m, 1h or 2d.');
  return ms;
}

export function time(text: string): Date {
  try {
    return new Date(parseInstant(text) / 1000);
  } catch {
    throw new InvalidArgumentError('Expected a time with a zone, such as 2026-03-01T09:30:00Z.');
  }
}
