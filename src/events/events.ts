import type { Queryable } from '../engine/database/database.ts';
import { requireText, requireWhole } from '../engine/validate.ts';
import { EventCatalogue, type EventType } from './catalogue.ts';
import { type Emitted, emit, emitMany, type NewEvent } from './emit.ts';
import { purgeEvents } from './purge.ts';
import { type DomainEvent, type EventFilter, type EventPage, getEvent, readEvents } from './read.ts';
import { engineEventTypes } from './types.ts';

export interface EventsOptions {
  /** The catalogue of types that users may not emit. Default: the engine's. */
  readonly catalogue?: EventCatalogue;
}

/**
 * Domain events, as users see them. Components call `emit` and `emitMany` of this folder with their own types.
 *
 * @example
 * const events = new Events(tallyman.database);
 * await tallyman.database.transaction(async (tx) => {
 *   await tx.query('update pallets set bay = $1 where id = $2', ['B7', 'P-1']);
 *   await events.emit(
 *     { type: 'pallet.moved', aggregateType: 'pallet', aggregateId: 'P-1', payload: { bay: 'B7' } },
 *     { tx },
 *   );
 * });
 */
export class Events {
  readonly #on: Queryable;
  readonly #catalogue: EventCatalogue;

  constructor(on: Queryable, { catalogue = new EventCatalogue(engineEventTypes) }: EventsOptions = {}) {
    this.#on = on;
    this.#catalogue = catalogue;
  }

  get types(): readonly EventType[] {
    return this.#catalogue.types;
  }

  /** Writes an event; with `tx` in that transaction. */
  async emit(event: NewEvent, { tx }: { readonly tx?: Queryable } = {}): Promise<Emitted> {
    this.#catalogue.requireFree(event.type);
    return emit(tx ?? this.#on, event);
  }

  /** The same for many, in one statement. */
  async emitMany(events: readonly NewEvent[], { tx }: { readonly tx?: Queryable } = {}): Promise<Emitted[]> {
    for (const { type } of events) this.#catalogue.requireFree(type);
    return emitMany(tx ?? this.#on, events);
  }

  /** Oldest first, after a cursor; misses none that commits late. */
  list(
    filter: EventFilter = {},
    { after = '0', limit = 50 }: { readonly after?: string; readonly limit?: number } = {},
  ): Promise<EventPage> {
    return readEvents(this.#on, after, filter, Math.min(Math.max(limit, 1), 1000));
  }

  /** By its public id; with `tenantId` only an event of that tenant. */
  async get(id: string, options: { readonly tenantId?: string } = {}): Promise<DomainEvent | undefined> {
    requireText(id, 'the event id', 128);
    return getEvent(this.#on, id, options);
  }

  /** Deletes older events, unless a listener still needs them. Returns how many. */
  async purge({ keepMs }: { readonly keepMs: number }): Promise<number> {
    requireWhole(keepMs, 'keepMs', 0, Number.MAX_SAFE_INTEGER);
    return purgeEvents(this.#on, keepMs);
  }
}
