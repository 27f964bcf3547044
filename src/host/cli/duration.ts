import { InvalidArgumentError } from 'commander';

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** `30s`, `5m`; seconds where no unit is given. In milliseconds. */
export function durationMs(text: string): number {
  const [, amount, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text) ?? [];
  const ms = Number(amount) * (units[unit] ?? 0);
  if (!(ms > 0) || ms > 2 ** 31 - 1) throw new InvalidArgumentError('Expected a time such as 30s, 5m or 1h.');
  return ms;
}
