import type { Queryable } from '../engine/database/database.ts';
import type { Finding } from '../engine/database/doctor.ts';

/** A listener that has not handled events older than their retention: they cannot be purged, nor any behind them. */
export interface HeldUp {
  readonly listener: string;
  /** Of its oldest event. */
  readonly days: number;
  /** The statement that removes the listener, and lets the events go. */
  readonly remedy: string;
}

/** Relies on the primary key of the events: one lookup for each listener. */
export async function listenersHoldingUp(on: Queryable, keepMs: number): Promise<HeldUp[]> {
  const { rows } = await on.query<{ listener: string; days: number; remedy: string }>(
    `select l.name as listener, floor(extract(epoch from now() - o.created_at) / 86400)::integer as days,
            format('select tallyman_events.stop_listening(%L);', l.name) as remedy
       from tallyman_events.listeners l
      cross join lateral (select v.created_at from tallyman_events.events v
                           where v.id > l.cursor order by v.id limit 1) o
      where o.created_at < now() - $1 * interval '1 millisecond'
      order by l.name`,
    [keepMs],
  );
  return rows;
}

export const heldUpAdvice = (remedies: readonly string[]): string =>
  `Start the process that runs the listener, and read its log to see why it is behind. If its app or zone was removed from the configuration, remove the listener: ${remedies.join(' ')}`;

/** For `tallyman doctor`. Nothing where there are no events. */
export async function examineListeners(on: Queryable, keepMs: number): Promise<Finding[]> {
  const { rows } = await on.query<{ isThere: boolean }>(
    `select to_regclass('tallyman_events.listeners') is not null as "isThere"`,
  );
  if (!rows[0]?.isThere) return [];
  const check = 'event-listeners';
  const found = await listenersHoldingUp(on, keepMs);
  if (found.length === 0)
    return [{ check, level: 'ok', message: 'no listener keeps old events from being purged' }];
  const names = found.map(({ listener, days }) => `"${listener}" (${days} days behind)`);
  return [
    {
      check,
      level: 'warn',
      message: `events are not purged: they wait for ${names.join(', ')}`,
      advice: heldUpAdvice(found.map(({ remedy }) => remedy)),
    },
  ];
}
