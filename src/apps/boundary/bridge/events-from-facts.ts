/**
 * Facts that came from other zones become domain events, by rules of the configuration (BND-16, decision 36): exactly once, in the
 * order of their stream.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import { messageOf } from '../../../engine/errors.ts';
import type { Logger } from '../../../engine/logger.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { Outage } from '../../../engine/resilience/outage.ts';
import { emitMany } from '../../../events/emit.ts';
import { streamName } from '../domain/delivery.ts';
import { eventOfFact, matchesAnyRule } from '../domain/event-rules.ts';
import { isGap } from '../domain/record.ts';
import { nodePrefix } from '../handoff/source.ts';
import type { NodeParts } from '../node.ts';
import type { Settings } from '../settings.ts';
import { advance, create, cursorOf, removeAll } from '../store/postgres/consumers.ts';
import type { StoredEntry, StreamId } from '../store/store.ts';

/** Its cursor is that of a consumer, so that no fact is trimmed before it is an event, and status and alarms know of it. */
export const eventsConsumer = `${nodePrefix}events`;

const page = { limit: 500, maxBytes: 4 * 1024 * 1024 } as const;
const afterErrorMs = 2000;

interface Parts extends Pick<NodeParts, 'database' | 'store'> {
  readonly settings: Pick<Settings, 'zone' | 'zones' | 'tenantId' | 'receivedRules'>;
}

/** A loop for each zone that facts may come from. Any number of processes may run them. */
export class EventsFromFacts {
  readonly #parts: Parts;
  readonly #stopping = new AbortController();
  readonly #loops: readonly { readonly stream: StreamId; readonly outage: Outage }[];
  #running: Promise<unknown> | undefined;

  constructor(parts: Parts, logger: Logger) {
    this.#parts = parts;
    const { tenantId, zone, zones } = parts.settings;
    this.#loops = zones.all
      .filter((from) => from !== zone)
      .map((from) => {
        const stream: StreamId = { tenantId, buffer: 'forward', from, to: zone };
        const words = {
          down: 'facts that came in are not events yet; it is tried again',
          up: 'facts that came in are events again',
        };
        return { stream, outage: new Outage(logger, { stream: streamName(stream) }, words) };
      });
  }

  get troubles(): readonly string[] {
    return this.#loops.flatMap(({ stream, outage }) =>
      outage.reason === undefined
        ? []
        : [`facts of ${streamName(stream)} wait to become events: ${outage.reason}`],
    );
  }

  /** Creates the consumers, so that facts received from now on become events. Without rules it deletes them. */
  async listen(): Promise<void> {
    const { settings, database } = this.#parts;
    const { tenantId } = settings;
    if (settings.receivedRules.length > 0) for (const { stream } of this.#loops) await this.#begin(stream);
    else
      await removeAll(
        new TenantDatabase(database, tenantId),
        { tenantId, buffer: 'forward' },
        eventsConsumer,
      );
  }

  start(): void {
    if (this.#parts.settings.receivedRules.length === 0) return;
    this.#running ??= Promise.all(this.#loops.map(({ stream, outage }) => this.#run(stream, outage)));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(stream: StreamId, outage: Outage): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#turn(stream, signal);
        outage.up();
      } catch (error) {
        if (signal.aborted) return;
        outage.down(messageOf(error));
        await pause(afterErrorMs, signal);
      }
    }
  }

  /** One page: events and cursor in one commit. Two processes may read the same page; one of them finds the cursor moved. */
  async #turn(stream: StreamId, signal: AbortSignal): Promise<void> {
    const { database, store } = this.#parts;
    const on = new TenantDatabase(database, stream.tenantId);
    const cursor = await cursorOf(on, stream, eventsConsumer);
    // Somebody has deleted it.
    if (cursor === undefined) return this.#begin(stream);
    const entries = await store.read(stream, { after: cursor, ...page, waitMs: 10_000, signal });
    const last = entries.at(-1);
    if (!last) return;
    await on.transaction(async (tx) => {
      if ((await cursorOf(tx, stream, eventsConsumer, { lock: true })) !== cursor) return;
      await this.#emit(tx, stream, entries);
      await advance(tx, stream, eventsConsumer, last.offset);
    });
  }

  async #emit(tx: Queryable, { tenantId }: StreamId, entries: readonly StoredEntry[]): Promise<void> {
    const { receivedRules } = this.#parts.settings;
    const { rows } = await tx.query<{ most: number }>(
      `select coalesce(nullif(current_setting('tallyman.max_payload_bytes', true), ''), '1048576')::integer as most`,
    );
    const most = rows[0]?.most ?? 0;
    const events = entries.flatMap(({ record, offset }) =>
      !isGap(record) && matchesAnyRule(receivedRules, record)
        ? [eventOfFact(tenantId, record, offset, most)]
        : [],
    );
    await emitMany(tx, events);
  }

  async #begin(stream: StreamId): Promise<void> {
    const { database, store } = this.#parts;
    const on = new TenantDatabase(database, stream.tenantId);
    if ((await cursorOf(on, stream, eventsConsumer)) !== undefined) return;
    const last = (await store.state(stream))?.last ?? 0;
    await create(on, stream, eventsConsumer, last, { instance: 'node', leaseMs: 0 });
  }
}
