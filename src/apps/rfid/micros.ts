import { type Micros, secondsToMicros } from '../../engine/instant.ts';

/** Of seconds as PostgreSQL writes them, with all six digits of their fraction. */
export function microsOf(seconds: string): Micros {
  const [whole, fraction = ''] = seconds.split('.');
  return Number(whole) * secondsToMicros + Number(fraction.padEnd(6, '0'));
}
