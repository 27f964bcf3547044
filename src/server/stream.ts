import type { ServerResponse } from 'node:http';
import type { Database } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';
import { type TenantCounts, tenantCounts } from '../engine/sql/tenant-counts.ts';
import { EventFeed } from './event-feed.ts';

/** The shortest time between two queries; after a slow query the next one waits twenty times as long, up to `mostPollMs`. */
const pollMs = 1_000;
/** A revoked key ends its streams within this time. */
const mostPollMs = 5_000;
/** Proxies close silent connections. */
const aliveMs = 15_000;
/** A reader that reads nothing is disconnected: its events would fill the memory. */
const mostUnsent = 256 * 1024;

/** Those of these keys that may still be used. */
export type StillValid = (keyIds: readonly string[]) => Promise<ReadonlySet<string>>;

export type Counts = Omit<TenantCounts, 'tenant_id'>;

/**
 * Server-sent events: `counts` whenever they have changed, `event` for each domain event (`EventFeed`). One poller per
 * process, and only while there are listeners; it runs one query for all tenants that have listeners.
 */
export class LiveStream {
  readonly #database: Database;
  readonly #clients = new Map<ServerResponse, string>();
  /** The keys of those that have one. */
  readonly #keys = new Map<ServerResponse, string>();
  readonly #stillValid: StillValid;
  readonly #last = new Map<string, string>();
  readonly #feed: EventFeed;
  #timer: NodeJS.Timeout | undefined;
  #alive: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(database: Database, stillValid: StillValid) {
    this.#database = database;
    this.#stillValid = stillValid;
    this.#feed = new EventFeed(database);
  }

  get clients(): number {
    return this.#clients.size;
  }

  clientsOf(tenantId: string): number {
    let clients = 0;
    for (const tenant of this.#clients.values()) if (tenant === tenantId) clients += 1;
    return clients;
  }

  /** `lastEventId`: of the header `Last-Event-ID`. The stream ends soon after `keyId` is revoked or has expired. */
  add(
    { tenantId, keyId }: { readonly tenantId: string; readonly keyId: string | undefined },
    response: ServerResponse,
    lastEventId?: string,
  ): void {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    response.write('retry: 2000\n\n');
    this.#clients.set(response, tenantId);
    if (keyId !== undefined) this.#keys.set(response, keyId);
    response.on('close', () => this.#remove(response));
    const known = this.#last.get(tenantId);
    if (known !== undefined) this.#send(response, 'counts', known);
    this.#alive ??= setInterval(() => {
      for (const client of this.#clients.keys()) client.write(': alive\n\n');
    }, aliveMs);
    this.#feed.add(tenantId, response, lastEventId);
    this.#timer ??= setTimeout(() => void this.#poll(), 0);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#alive);
    const fed = this.#feed.stop();
    for (const client of this.#clients.keys()) client.end();
    this.#clients.clear();
    await fed;
  }

  #remove(response: ServerResponse): void {
    this.#clients.delete(response);
    this.#keys.delete(response);
    this.#feed.remove(response);
    if (this.#clients.size > 0) return;
    clearTimeout(this.#timer);
    clearInterval(this.#alive);
    this.#timer = undefined;
    this.#alive = undefined;
    this.#last.clear();
  }

  async #poll(): Promise<void> {
    const began = performance.now();
    try {
      await this.#endRevoked();
      for (const { tenant, ...counts } of await this.#look([...new Set(this.#clients.values())]))
        this.#tell(tenant, JSON.stringify(counts));
    } catch (error) {
      this.#database.logger.debug(
        { error: messageOf(error) },
        'the live stream could not look; it tries again',
      );
    }
    if (this.#stopped || this.#clients.size === 0) return;
    this.#timer = setTimeout(
      () => void this.#poll(),
      Math.min(mostPollMs, Math.max(pollMs, (performance.now() - began) * 20)),
    );
  }

  async #endRevoked(): Promise<void> {
    if (this.#keys.size === 0) return;
    const valid = await this.#stillValid([...new Set(this.#keys.values())]);
    for (const [client, key] of this.#keys) if (!valid.has(key)) client.end();
  }

  #tell(tenantId: string, counts: string): void {
    if (this.#last.get(tenantId) === counts) return;
    this.#last.set(tenantId, counts);
    for (const [client, tenant] of this.#clients)
      if (tenant === tenantId) this.#send(client, 'counts', counts);
  }

  #send(client: ServerResponse, event: string, data: string): void {
    client.write(`event: ${event}\ndata: ${data}\n\n`);
    if (client.writableLength > mostUnsent) client.destroy();
  }

  async #look(tenants: readonly string[]): Promise<(Counts & { tenant: string })[]> {
    const rows = await tenantCounts(this.#database, { tenants });
    return rows.map(({ tenant_id: tenant, ...counts }) => ({ tenant, ...counts }));
  }
}
