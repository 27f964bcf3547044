const steps = [
  { ms: 86_400_000, unit: 'd' },
  { ms: 3_600_000, unit: 'h' },
  { ms: 60_000, unit: 'min' },
  { ms: 1000, unit: 's' },
] as const;

/** `3 min ago`, `in 5 s`, `now`. */
export function relativeTime(at: Date, now: Date): string {
  const ms = now.getTime() - at.getTime();
  const size = Math.abs(ms);
  if (size < 1000) return 'now';
  const text = duration(size);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** The largest unit that fits, without fractions: `90 s` is `1 min`. */
export function duration(ms: number): string {
  const step = steps.find((candidate) => ms >= candidate.ms);
  return step ? `${Math.floor(ms / step.ms)} ${step.unit}` : `${Math.round(ms)} ms`;
}

/** For a page about one item: the exact time, and how long ago that is. */
export function fullTime(at: Date, now: Date): string {
  return `${at.toISOString().replace('T', ' ').replace('Z', ' UTC')} (${relativeTime(at, now)})`;
}
