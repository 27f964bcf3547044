import type { ServerResponse } from 'node:http';
import type { Database } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';
import { pause } from '../engine/resilience/deadline.ts';
import { type TenantCounts, tenantCounts } from '../engine/sql/tenant-counts.ts';
import { EventFeed } from './event-feed.ts';

/** The shortest time between two queries; after a slow query the next one waits twenty times as long, up to `mostPollMs`. */
const pollMs = 1_000;
/** A revoked key ends its streams within this time. */
const mostPollMs = 5_000;
/** Proxies close silent connections. */
const aliveMs = 15_000;
/** A reader that reads nothing is disconnected: its data would fill the memory. */
const mostUnsent = 1024 * 1024;
/** A stream that ends may send for so long what it has; then its connection is closed. */
const endGraceMs = 1_000;

/** Those of these keys that may still be used. */
export type StillValid = (keyIds: readonly string[]) => Promise<ReadonlySet<string>>;

export type Counts = Omit<TenantCounts, 'tenant_id'>;

/**
 * Server-sent events: `counts` whenever they have changed, `event` for each domain event (`EventFeed`). One poller per
 * process, and only while there are listeners; it runs one query for all tenants that have listeners. Revoked keys are
 * looked for in a loop of its own, because counting may take as long as a statement may.
 *
 * Only clients in the maps are written to: a stream leaves them before it ends, because a write after that is an error.
 */
export class LiveStream {
  readonly #database: Database;
  readonly #clients = new Map<ServerResponse, string>();
  /** The keys of those that have one. */
  readonly #keys = new Map<ServerResponse, string>();
  readonly #stillValid: StillValid;
  readonly #last = new Map<string, string>();
  readonly #feed: EventFeed;
  readonly #counting: Repeated;
  readonly #revoking: Repeated;
  #alive: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(database: Database, stillValid: StillValid) {
    this.#database = database;
    this.#stillValid = stillValid;
    this.#feed = new EventFeed(database);
    const trouble = (error: unknown) =>
      database.logger.debug({ error: messageOf(error) }, 'the live stream could not look; it tries again');
    this.#counting = new Repeated(() => this.#count(), trouble);
    this.#revoking = new Repeated(() => this.#endRevoked(), trouble);
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
    // It went away while its key was looked up: it closes no second time.
    if (response.destroyed) return;
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    response.write('retry: 2000\n\n');
    if (this.#stopped) return void response.end();
    this.#clients.set(response, tenantId);
    if (keyId !== undefined) this.#keys.set(response, keyId);
    response.on('close', () => this.#remove(response));
    response.on('error', () => response.destroy());
    const known = this.#last.get(tenantId);
    if (known !== undefined) this.#send(response, 'counts', known);
    this.#alive ??= setInterval(() => {
      for (const client of this.#clients.keys()) this.#write(client, ': alive\n\n');
    }, aliveMs);
    this.#feed.add(tenantId, response, lastEventId);
    this.#counting.start();
    this.#revoking.start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    const fed = this.#feed.stop();
    for (const client of [...this.#clients.keys()]) this.#end(client);
    await fed;
  }

  #end(response: ServerResponse): void {
    this.#remove(response);
    response.end();
    // A client that reads nothing would never let it finish.
    const timer = setTimeout(() => response.destroy(), endGraceMs);
    response.once('close', () => clearTimeout(timer));
  }

  #remove(response: ServerResponse): void {
    this.#clients.delete(response);
    this.#keys.delete(response);
    this.#feed.remove(response);
    if (this.#clients.size > 0) return;
    this.#counting.stop();
    this.#revoking.stop();
    clearInterval(this.#alive);
    this.#alive = undefined;
    this.#last.clear();
  }

  async #count(): Promise<void> {
    const tenants = [...new Set(this.#clients.values())];
    for (const { tenant_id: tenant, ...counts } of await tenantCounts(this.#database, { tenants }))
      this.#tell(tenant, JSON.stringify(counts));
  }

  async #endRevoked(): Promise<void> {
    if (this.#keys.size === 0) return;
    const asked = new Set(this.#keys.values());
    const valid = await this.#stillValid([...asked]);
    for (const [client, key] of [...this.#keys]) if (asked.has(key) && !valid.has(key)) this.#end(client);
  }

  #tell(tenantId: string, counts: string): void {
    if (this.#last.get(tenantId) === counts) return;
    this.#last.set(tenantId, counts);
    for (const [client, tenant] of this.#clients)
      if (tenant === tenantId) this.#send(client, 'counts', counts);
  }

  #send(client: ServerResponse, event: string, data: string): void {
    this.#write(client, `event: ${event}\ndata: ${data}\n\n`);
  }

  #write(client: ServerResponse, text: string): void {
    client.write(text);
    if (client.writableLength > mostUnsent) client.destroy();
  }
}

/** Runs `work` again and again between `start` and `stop`, one after another, the first time at once. */
class Repeated {
  readonly #work: () => Promise<void>;
  readonly #trouble: (error: unknown) => void;
  #isWanted = false;
  /** Stays set after `stop` while `work` is under way: a start in between must not make a second loop. */
  #isRunning = false;
  #rest = new AbortController();

  constructor(work: () => Promise<void>, trouble: (error: unknown) => void) {
    this.#work = work;
    this.#trouble = trouble;
  }

  start(): void {
    this.#isWanted = true;
    if (!this.#isRunning) void this.#run();
  }

  stop(): void {
    this.#isWanted = false;
    this.#rest.abort();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#isWanted) {
      this.#rest = new AbortController();
      const began = performance.now();
      await this.#work().catch(this.#trouble);
      const tookMs = performance.now() - began;
      await pause(Math.min(mostPollMs, Math.max(pollMs, tookMs * 20)), this.#rest.signal);
    }
    this.#isRunning = false;
  }
}
