import type { ServerResponse } from 'node:http';
import type { Database } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';
import { type NewDeadLetter, newDeadLetters } from '../engine/sql/new-dead-letters.ts';
import { type TenantCounts, tenantCounts } from '../engine/sql/tenant-counts.ts';

/** Between two looks, at least; a look that is slow makes the next one wait twenty times as long. */
const pollMs = 1_000;
/** Proxies close what is silent. */
const aliveMs = 15_000;
/** A reader that takes nothing in is let go: its events would gather in memory. */
const mostUnsent = 256 * 1024;

export type Counts = Omit<TenantCounts, 'tenant_id'>;

interface Look {
  readonly counts: Counts;
  readonly deadLetters: readonly Pick<NewDeadLetter, 'id' | 'kind' | 'queue' | 'message'>[];
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
    const rows = await tenantCounts(this.#database, { tenants });
    const letters = await this.#newLetters(tenants);
    return new Map(
      rows.map(({ tenant_id: tenant, ...counts }) => [
        tenant,
        {
          counts,
          deadLetters: letters
            .filter((letter) => letter.tenant_id === tenant)
            .map(({ id, kind, queue, message }) => ({ id, kind, queue, message })),
        },
      ]),
    );
  }

  /** Those that were buried since the last look. The first look only learns where to begin. */
  async #newLetters(tenants: readonly string[]): Promise<readonly NewDeadLetter[]> {
    if (this.#newestLetter === undefined) {
      const { rows } = await this.#database.query<{ now: string }>('select clock_timestamp()::text as now');
      this.#newestLetter = rows[0]?.now;
      return [];
    }
    const letters = await newDeadLetters(this.#database, { tenants, after: this.#newestLetter });
    this.#newestLetter = letters.at(-1)?.failed_at ?? this.#newestLetter;
    return letters;
  }
}
