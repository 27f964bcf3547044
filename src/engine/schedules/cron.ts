import { Cron } from 'croner';
import { messageOf, TallymanError } from '../errors.ts';
import { requireText } from '../validate.ts';

/**
 * Years in which the next time is looked for: the next ones, or the first of those that the cron names. When days of the month
 * and of the week never meet, croner looks at each day of 400 years and more, on the event loop. February 29 is a Monday
 * at least every 40 years.
 */
const mostYears = 42;

/** When a schedule runs. */
export interface Rhythm {
  /** Null: there is no time within 40 years, or the years that the cron names. */
  nextRun(after: Date): Date | null;
}

/** Throws BAD_SCHEDULE. */
export function parseCron(name: string, cron: string, timezone: string): Rhythm {
  requireText(cron, `cron of schedule "${name}"`, 256);
  const refuse = (problem: string) =>
    new TallymanError('BAD_SCHEDULE', `cron "${cron}" of schedule "${name}" is refused: ${problem}`);
  // Croner also takes a single date; that is a delayed job, not a schedule.
  if (/^\d{4}-\d\d-\d\d/.test(cron)) throw refuse('it is a date; enqueue a job with scheduledAt instead');
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone });
  } catch {
    throw new TallymanError(
      'BAD_SCHEDULE',
      `timezone "${timezone}" of schedule "${name}" is not known; expected an IANA name such as Europe/Berlin`,
    );
  }
  try {
    new Cron(cron, { timezone, paused: true });
  } catch (error) {
    throw refuse(messageOf(error).replace(/^CronPattern: /, ''));
  }
  return {
    nextRun: (after) => {
      const bounded = withinYears(cron, after.getUTCFullYear());
      return bounded === undefined ? null : new Cron(bounded, { timezone, paused: true }).nextRun(after);
    },
  };
}

/** The same times in at most `mostYears`; undefined: there are none. Croner stops at the last year that a cron names. */
function withinYears(cron: string, year: number): string | undefined {
  // The year in the time zone may differ from that of UTC.
  const first = year - 1;
  const fields = cron.trim().split(/\s+/);
  // @hourly and the like come soon.
  if (fields.length < 5) return cron;
  if (fields.length === 5) fields.unshift('0');
  const years = fields.length === 6 ? `${first}-${first + mostYears}` : yearsOf(fields.pop() ?? '*', first);
  return years === '' ? undefined : [...fields, years].join(' ');
}

/** The first years that the field names, one by one. */
function yearsOf(field: string, first: number): string {
  const newYears = new Cron(`0 0 0 1 1 * ${field}`, { timezone: 'UTC', paused: true });
  const years: number[] = [];
  let at = newYears.nextRun(new Date(Date.UTC(first - 1, 11, 31)));
  while (at && years.length < mostYears) {
    years.push(at.getUTCFullYear());
    at = newYears.nextRun(at);
  }
  return years.join(',');
}
