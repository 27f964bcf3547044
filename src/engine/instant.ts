import { TallymanError } from './errors.ts';

/** Microseconds since 1970 in UTC; a number holds them exactly until the year 2255. */
export type Micros = number;

export const secondsToMicros = 1_000_000;

const pattern =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?\s?(?:(Z)|([+-])(\d\d):?(\d\d)?)$/i;

/**
 * Reads ISO 8601 with a zone: `2026-03-01T09:30:00.123456Z`, `2026-03-01 10:30:00+0100`. Digits beyond the microsecond
 * are cut off, not rounded: PostgreSQL would round them, so what it is handed has to be cut before.
 */
export function parseInstant(text: string): Micros {
  const match = pattern.exec(text.trim());
  if (!match)
    throw new TallymanError(
      'BAD_TIMESTAMP',
      `"${shown(text)}" is not a time: expected ISO 8601 with a zone, such as 2026-03-01T09:30:00.123456Z`,
    );
  const [, year, month, day, hour, minute, second, fraction = '', zulu, sign, zoneHours, zoneMinutes] = match;
  const wall = wallClock(
    Number(year),
    Number(month),
    Number(day),
    Number(hour),
    Number(minute),
    Number(second),
  );
  if (wall === undefined)
    throw new TallymanError('BAD_TIMESTAMP', `"${shown(text)}" is not a time that the calendar has`);
  const offset = zulu ? 0 : zoneOffset(sign === '-' ? -1 : 1, Number(zoneHours), Number(zoneMinutes ?? 0));
  if (offset === undefined)
    throw new TallymanError(
      'BAD_TIMESTAMP',
      `"${shown(text)}" has a zone that does not exist: offsets go from -15:59 to +15:59`,
    );
  return (wall - offset) * 1000 + Number(fraction.slice(0, 6).padEnd(6, '0'));
}

/** Milliseconds; undefined for `+25:00`. PostgreSQL has the same bounds, and would refuse the whole batch. */
function zoneOffset(sign: 1 | -1, hours: number, minutes: number): number | undefined {
  return hours > 15 || minutes > 59 ? undefined : sign * (hours * 60 + minutes) * 60_000;
}

/** Milliseconds of a time in UTC; undefined for 30 February, which `Date.UTC` would take for 2 March. */
function wallClock(year: number, month: number, day: number, hour: number, minute: number, second: number) {
  if (year < 100 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59)
    return undefined;
  if (day > 28 && new Date(Date.UTC(year, month - 1, day)).getUTCDate() !== day) return undefined;
  return Date.UTC(year, month - 1, day, hour, minute, second);
}

/** Reads come by the hundred within a second: most have the date and time of the one before. */
let lastSeconds = Number.NaN;
let lastText = '';

/** The one spelling of an instant: UTC, with six digits of fraction. */
export function formatInstant(at: Micros): string {
  const seconds = Math.floor(at / secondsToMicros);
  if (seconds !== lastSeconds) {
    lastText = new Date(seconds * 1000).toISOString().slice(0, -5);
    lastSeconds = seconds;
  }
  return `${lastText}.${String(at - seconds * secondsToMicros).padStart(6, '0')}Z`;
}

const shown = (text: string): string => (text.length > 60 ? `${text.slice(0, 60)}…` : text);
