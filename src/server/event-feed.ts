import type { ServerResponse } from 'node:http';
import type { Database } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';
import { pause } from '../engine/resilience/deadline.ts';
import { EventBell } from '../events/bell.ts';
import { currentPosition, readEvents } from '../events/read.ts';
import { eventJson } from './routes/events.ts';

/** How often it looks without being notified; after a slow query the next one waits five times as long. */
const defaultPollMs = 250;
/** Events that come one by one share a look: at most so often. */
const shortestPauseMs = 20;
/** Events of one tenant read in one query. */
const batch = 100;
/** A reader with this much unread data gets no more until it has read it. */
const enoughUnsent = 64 * 1024;

interface Client {
  readonly tenantId: string;
  /** Undefined until its start position is known. */
  cursor: string | undefined;
}

/**
 * Sends events to the readers of the live stream, each from its own cursor. `id` is the position, so that a reader that
 * reconnects with `Last-Event-ID` continues where it was. Readers of a tenant at the same position share a query.
 *
 *   idle ── a reader comes ──▶ looking ◀── notified of a commit, poll, another reader ──┐
 *     ▲                          │ nothing there ──▶ waiting ────────────────────────────┤
 *     └── the last one leaves ───┤ events sent ──▶ short pause ──────────────────────────┘
 *                                └── stop() ──▶ idle
 */
export class EventFeed {
  readonly #database: Database;
  readonly #pollMs: number;
  readonly #clients = new Map<ServerResponse, Client>();
  #hinted = new AbortController();
  #running: Promise<void> | undefined;

  constructor(database: Database, { pollMs = defaultPollMs }: { readonly pollMs?: number } = {}) {
    this.#database = database;
    this.#pollMs = pollMs;
  }

  /** `lastEventId`: the last event that the reader got. Without it, it gets events from now on. */
  add(tenantId: string, response: ServerResponse, lastEventId: string | undefined): void {
    const cursor = lastEventId !== undefined && /^\d{1,18}$/.test(lastEventId) ? lastEventId : undefined;
    this.#clients.set(response, { tenantId, cursor });
    this.#hinted.abort();
    this.#running ??= this.#run();
  }

  remove(response: ServerResponse): void {
    this.#clients.delete(response);
    if (this.#clients.size === 0) this.#hinted.abort();
  }

  async stop(): Promise<void> {
    this.#clients.clear();
    this.#hinted.abort();
    await this.#running;
  }

  /** Until the last reader has left. */
  async #run(): Promise<void> {
    const bell = new EventBell(this.#database, () => this.#hinted.abort());
    const ringing = bell.start();
    while (this.#clients.size > 0) {
      this.#hinted = new AbortController();
      const began = performance.now();
      const wereThere = await this.#tryLook();
      const rest = (performance.now() - began) * 5;
      if (wereThere) {
        await bell.mute();
        await pause(Math.max(shortestPauseMs, rest));
      } else if (!(await bell.wait())) await pause(Math.max(this.#pollMs, rest), this.#hinted.signal);
    }
    await ringing;
    await bell.stop();
    // One that came while the bell was stopped.
    this.#running = this.#clients.size > 0 ? this.#run() : undefined;
  }

  async #tryLook(): Promise<boolean> {
    try {
      return await this.#look();
    } catch (error) {
      this.#database.logger.debug(
        { error: messageOf(error) },
        'the live stream could not read events; it tries again',
      );
      return false;
    }
  }

  /** Returns whether there were events: then there may be more. */
  async #look(): Promise<boolean> {
    const end = await currentPosition(this.#database);
    for (const [response, client] of this.#clients)
      if (client.cursor === undefined) {
        client.cursor = end;
        // An id without data: the reader knows its position, and misses nothing if it reconnects before the first event.
        response.write(`id: ${end}\n\n`);
      }
    const places = this.#places(BigInt(end));
    for (const [{ tenantId, cursor }, readers] of places) {
      const page = await readEvents(this.#database, cursor, { tenantId }, batch);
      const frames = page.events.map((event) => ({
        position: event.position,
        text: `id: ${event.position}\nevent: event\ndata: ${JSON.stringify(eventJson(event))}\n\n`,
      }));
      for (const response of readers) {
        const client = this.#clients.get(response);
        if (client) client.cursor = send(response, frames) ?? page.cursor;
      }
    }
    return places.size > 0;
  }

  /** Readers that are behind, grouped by position. */
  #places(end: bigint): Map<{ tenantId: string; cursor: string }, ServerResponse[]> {
    const places = new Map<string, { tenantId: string; cursor: string }>();
    const readers = new Map<{ tenantId: string; cursor: string }, ServerResponse[]>();
    for (const [response, { tenantId, cursor }] of this.#clients) {
      if (cursor === undefined || BigInt(cursor) >= end || response.writableLength > enoughUnsent) continue;
      const key = `${cursor} ${tenantId}`;
      const place = places.get(key) ?? { tenantId, cursor };
      places.set(key, place);
      readers.set(place, [...(readers.get(place) ?? []), response]);
    }
    return readers;
  }
}

/** Undefined if all were sent; otherwise the position at which the reader's buffer was full. */
function send(
  response: ServerResponse,
  frames: readonly { readonly position: string; readonly text: string }[],
): string | undefined {
  for (const { position, text } of frames) {
    response.write(text);
    if (response.writableLength > enoughUnsent) return position;
  }
  return undefined;
}
