/**
 * Events of other apps become facts, by rules of the configuration (BND-16, decision 36). There is a listener for each zone that
 * facts go to: a full stream to one zone does not hold up events for other zones.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import { withinTenant } from '../../../engine/database/tenant.ts';
import type { Logger } from '../../../engine/logger.ts';
import { type EventBatch, EventFollower } from '../../../events/follower.ts';
import { BoundaryError } from '../domain/errors.ts';
import { type EventRow, type EventRule, factOfEvent, matchesType, typesIn } from '../domain/event-rules.ts';
import type { FactInput } from '../domain/fact.ts';
import type { Zone } from '../domain/zones.ts';
import { localCaller, type NodeParts } from '../node.ts';
import type { Settings } from '../settings.ts';
import { eventColumns, noteRefused } from './refused-events.ts';

/** Events in one transaction of the follower. */
const eventsInABatch = 1000;
/** What one append carries, about. */
const bytesInAPage = 1024 * 1024;

const listenerPrefix = 'boundary:';
const listenerOf = (zone: Zone): string => `${listenerPrefix}${zone}`;

interface Parts extends Pick<NodeParts, 'database' | 'intake'> {
  readonly settings: Pick<Settings, 'zone' | 'sendsTo' | 'tenantId' | 'eventRules'>;
}

export class FactsFromEvents {
  readonly #parts: Parts;
  readonly #logger: Logger;
  readonly #followers: ReadonlyMap<Zone, EventFollower>;

  constructor(parts: Parts, logger: Logger, options: { readonly pollMs?: number } = {}) {
    this.#parts = parts;
    this.#logger = logger;
    this.#followers = new Map(
      [...Map.groupBy(parts.settings.eventRules, ({ to }) => to)].map(([zone, rules]) => [
        zone,
        new EventFollower({
          database: parts.database,
          listener: listenerOf(zone),
          batch: eventsInABatch,
          handle: (tx, batch) => this.#handle(tx, batch, zone, rules),
          ...options,
        }),
      ]),
    );
  }

  /** Why events wait, for each zone that they wait for. */
  get troubles(): readonly string[] {
    return [...this.#followers].flatMap(([zone, { trouble }]) =>
      trouble === undefined ? [] : [`events wait to become facts for zone "${zone}": ${trouble}`],
    );
  }

  /**
   * Registers a listener for each zone that a rule names. Deletes the listeners of other zones, and with them their waiting events.
   */
  async listen(): Promise<void> {
    const { database } = this.#parts;
    const wanted = [...this.#followers.keys()].map(listenerOf);
    const { rows } = await database.query<{ name: string }>(
      'select name from tallyman_events.listeners where name ^@ $1 and name <> all ($2::text[])',
      [listenerPrefix, wanted],
    );
    for (const { name } of rows) await database.query('select tallyman_events.stop_listening($1)', [name]);
    for (const name of wanted) await database.query('select tallyman_events.listen($1)', [name]);
  }

  start(): void {
    for (const follower of this.#followers.values()) follower.start();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#followers.values()].map((follower) => follower.stop()));
  }

  /**
   * The facts are durable before the cursor moves. Should the process die in between, the events come again and give the
   * same message ids: the facts are there.
   */
  async #handle(tx: Queryable, { after, upTo }: EventBatch, zone: Zone, rules: readonly EventRule[]) {
    const refused: Refused[] = [];
    for (let reached = after; reached !== upTo; ) {
      const page = await readPage(tx, { after: reached, upTo }, this.#parts.settings.tenantId, rules);
      const last = page.at(-1);
      if (!last) break;
      refused.push(...(await this.#append(page, rules)));
      reached = last.position;
    }
    if (refused.length > 0) await this.#note(tx, zone, refused);
  }

  async #append(page: readonly EventRow[], rules: readonly EventRule[]): Promise<Refused[]> {
    const { settings, intake } = this.#parts;
    const refused: Refused[] = [];
    const made: { readonly event: EventRow; readonly rule: EventRule; readonly fact: FactInput }[] = [];
    for (const event of page)
      for (const rule of rules.filter((each) => matchesType(each, event.type))) {
        try {
          made.push({ event, rule, fact: factOfEvent(event, rule, settings.zone) });
        } catch (error) {
          if (!(error instanceof BoundaryError)) throw error;
          refused.push({ event, rule, error });
        }
      }
    const outcomes = await intake.appendInOrder(
      localCaller(settings, 'events'),
      made.map(({ fact }) => fact),
    );
    for (const [i, { event, rule }] of made.entries()) {
      const error = outcomes[i];
      if (error) refused.push({ event, rule, error });
    }
    return refused;
  }

  async #note(tx: Queryable, zone: Zone, refused: readonly Refused[]): Promise<void> {
    const { tenantId } = this.#parts.settings;
    const notes = refused.map(({ event, rule, error }) => ({
      event: event.id,
      type: event.type,
      predicate: rule.predicate,
      error,
    }));
    await withinTenant(tx, tenantId, () => noteRefused(tx, { tenantId, to: zone }, notes));
    const [first] = refused;
    this.#logger.error(
      {
        zone,
        events: new Set(refused.map(({ event }) => event.id)).size,
        event: first?.event.id,
        type: first?.event.type,
        error: first?.error.message,
      },
      'some events cannot become facts; the rest continue. List them, with the reasons: tallyman facts refused-events list. Change the rule or the emitter, then retry or drop them',
    );
  }
}

interface Refused {
  readonly event: EventRow;
  readonly rule: EventRule;
  readonly error: Error;
}

/** The next events that a rule names, as many as one append carries. Relies on events_of_tenant. */
async function readPage(
  tx: Queryable,
  { after, upTo }: EventBatch,
  tenantId: string,
  rules: readonly EventRule[],
): Promise<EventRow[]> {
  const { types, prefixes } = typesIn(rules);
  const { rows } = await tx.query<EventRow>(
    `select e.position, e.id, e.type, e."aggregateType", e."aggregateId", e."occurredAt", e."createdAt", e.payload
       from (select ${eventColumns},
                    sum(octet_length(v.payload::text)) over before as bytes, row_number() over before as n
               from tallyman_events.events v
              where v.tenant_id = $1 and v.id > $2 and v.id <= $3
                and (v.event_type = any ($4::text[]) or v.event_type ^@ any ($5::text[]))
             window before as (order by v.id)) e
      where e.n = 1 or e.bytes <= $6
      order by e.position`,
    [tenantId, after, upTo, types, prefixes, bytesInAPage],
  );
  return rows;
}
