import type { ServerResponse } from 'node:http';
import type { Database } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';

/** Between two looks, at least; a look that is slow makes the next one wait twenty times as long. */
const pollMs = 1_000;
/** Proxies close what is silent. */
const aliveMs = 15_000;
/** A reader that takes nothing in is let go: its events would gather in memory. */
const mostUnsent = 256 * 1024;

export interface Counts {
  readonly ready: number;
  readonly waiting: number;
  readonly running: number;
  readonly dead_letters: number;
  readonly blocked_lanes: number;
  /** Jobs that ended in the last minute. */
  readonly finished_last_minute: number;
}

interface Look {
  readonly counts: Counts;
  readonly deadLetters: readonly { id: string; kind: string; queue: string; message: string | null }[];
}

/**
 * Server-sent events: `counts` whenever they have changed, `dead_letter` for each new one. One poller a process, and only
 * while somebody listens; it asks once for all tenants that have listeners, however many listeners there are.
 */
export class LiveStream {
  readonly #database: Database;
  readonly #clients = new Map<ServerResponse, string>();
  readonly #last = new Map<string, string>();
  #newestLetter: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #alive: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(database: Database) {
    this.#database = database;
  }

  get clients(): number {
    return this.#clients.size;
  }

  add(tenantId: string, response: ServerResponse): void {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    response.write('retry: 2000\n\n');
    this.#clients.set(response, tenantId);
    response.on('close', () => this.#remove(response));
    const known = this.#last.get(tenantId);
    if (known !== undefined) this.#send(response, 'counts', known);
    this.#alive ??= setInterval(() => {
      for (const client of this.#clients.keys()) client.write(': alive\n\n');
    }, aliveMs);
    this.#timer ??= setTimeout(() => void this.#poll(), 0);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#alive);
    for (const client of this.#clients.keys()) client.end();
    this.#clients.clear();
  }

  #remove(response: ServerResponse): void {
    this.#clients.delete(response);
    if (this.#clients.size > 0) return;
    clearTimeout(this.#timer);
    clearInterval(this.#alive);
    this.#timer = undefined;
    this.#alive = undefined;
    this.#last.clear();
    this.#newestLetter = undefined;
  }

  async #poll(): Promise<void> {
    const began = performance.now();
    try {
      for (const [tenantId, look] of await this.#look([...new Set(this.#clients.values())]))
        this.#tell(tenantId, look);
    } catch (error) {
      this.#database.logger.debug(
        { error: messageOf(error) },
        'the live stream could not look; it tries again',
      );
    }
    if (this.#stopped || this.#clients.size === 0) return;
    this.#timer = setTimeout(() => void this.#poll(), Math.max(pollMs, (performance.now() - began) * 20));
  }

  #tell(tenantId: string, look: Look): void {
    const counts = JSON.stringify(look.counts);
    const changed = this.#last.get(tenantId) !== counts;
    this.#last.set(tenantId, counts);
    for (const [client, tenant] of this.#clients) {
      if (tenant !== tenantId) continue;
      if (changed) this.#send(client, 'counts', counts);
      for (const letter of look.deadLetters) this.#send(client, 'dead_letter', JSON.stringify(letter));
    }
  }

  #send(client: ServerResponse, event: string, data: string): void {
    client.write(`event: ${event}\ndata: ${data}\n\n`);
    if (client.writableLength > mostUnsent) client.destroy();
  }

  async #look(tenants: readonly string[]): Promise<Map<string, Look>> {
    const { rows } = await this.#database.query<Counts & { tenant: string }>(
      'select tenant_id as tenant, ready, waiting, running, dead_letters, blocked_lanes, finished_last_minute from tallyman.tenant_counts($1)',
      [tenants],
    );
    const letters = await this.#newLetters(tenants);
    return new Map(
      rows.map(({ tenant, ...counts }) => [
        tenant,
        {
          counts,
          deadLetters: letters
            .filter((letter) => letter.tenant === tenant)
            .map(({ tenant: _, ...letter }) => letter),
        },
      ]),
    );
  }

  /** Those that were buried since the last look. The first look only learns where to begin. */
  async #newLetters(tenants: readonly string[]) {
    const { rows } = await this.#database.query<{
      tenant: string;
      id: string;
      kind: string;
      queue: string;
      message: string | null;
      newest: string;
    }>(
      `select tenant_id as tenant, id, kind, queue, message, failed_at::text as newest
         from tallyman.new_dead_letters($1, coalesce($2::timestamptz, clock_timestamp()))`,
      [tenants, this.#newestLetter ?? null],
    );
    if (this.#newestLetter === undefined) {
      const { rows: now } = await this.#database.query<{ now: string }>(
        'select clock_timestamp()::text as now',
      );
      this.#newestLetter = now[0]?.now;
    } else this.#newestLetter = rows.at(-1)?.newest ?? this.#newestLetter;
    return rows.map(({ newest: _, ...letter }) => letter);
  }
}
