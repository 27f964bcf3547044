/** Topic filters: which topics they match, and how a shared group is written. */

/** Whether a topic is one that the filter asks for; `filter` is without `$share/…`. */
export function matches(filter: string, topic: string): boolean {
  // A leading wildcard never matches the broker's own topics.
  if (topic.startsWith('$') && (filter.startsWith('+') || filter.startsWith('#'))) return false;
  const wanted = filter.split('/');
  const levels = topic.split('/');
  for (const [i, level] of wanted.entries()) {
    if (level === '#') return true;
    if (i >= levels.length) return false;
    if (level !== '+' && level !== levels[i]) return false;
  }
  return wanted.length === levels.length;
}

/** Explains what is wrong with a filter; undefined for a valid one. */
export function flawOf(filter: string): string | undefined {
  if (filter === '') return 'it is empty';
  if (Buffer.byteLength(filter) > 65_535) return 'it is longer than 65,535 bytes';
  if (filter.includes('\0')) return 'it contains a zero byte';
  if (filter.startsWith('$share/')) return 'the shared group is added by sharedSubscriptionGroup';
  const levels = filter.split('/');
  for (const [i, level] of levels.entries()) {
    if (level === '#' && i < levels.length - 1) return '# stands for all that follows and must come last';
    if (level !== '#' && level.includes('#')) return '# must have a level of its own';
    if (level !== '+' && level.includes('+')) return '+ must have a level of its own';
  }
  return undefined;
}

/** Instances with the same group share the messages; a group belongs to one environment. */
export function sharedFilter(group: string, environmentId: string, filter: string): string {
  return `$share/${group}-${environmentId}/${filter}`;
}
