import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { messageOf } from '../../engine/errors.ts';
import type { Micros } from '../../engine/instant.ts';
import { type Logger, silentLogger } from '../../engine/logger.ts';
import { pause } from '../../engine/resilience/deadline.ts';

export interface Clock {
  readonly tenantId: string;
  readonly deviceId: string;
  /** Its clock minus ours; positive: it is ahead. */
  readonly skewMs: number;
}

export interface DeviceWatchOptions {
  readonly database: Queryable;
  readonly logger?: Logger;
  /** A device whose clock is ahead by more than this is warned about. Default 30,000. */
  readonly aheadLimitMs?: number;
  /** How often what was noted is written. Default 5,000. */
  readonly intervalMs?: number;
}

interface Noted {
  readonly tenantId: string;
  readonly deviceId: string;
  seenAt: number;
  readAt: number | undefined;
  /** The largest of the interval: a delay makes a clock look behind, and nothing makes it look ahead. */
  skewMs: number | undefined;
  ignored: number;
}

/** The same device is warned about at most this often. */
const warnAgainMs = 600_000;

/**
 * Notes when devices were heard of, how far their clocks are off, and how many of their reads were ignored; writes it to
 * `iot.device_states` every few seconds, beside the commits of reads, so that it costs them nothing. What a killed process had
 * not written is missing there.
 */
export class DeviceWatch {
  readonly #options: DeviceWatchOptions;
  readonly #logger: Logger;
  readonly #aheadLimitMs: number;
  readonly #clocks = new Map<string, Clock>();
  readonly #warnedAt = new Map<string, number>();
  #noted = new Map<string, Noted>();

  constructor(options: DeviceWatchOptions) {
    this.#options = options;
    this.#logger = options.logger ?? silentLogger;
    this.#aheadLimitMs = options.aheadLimitMs ?? 30_000;
  }

  /** A message of the device has arrived; `eventAt` is the time by its own clock. */
  heard(tenantId: string, deviceId: string, receivedAt: Date, eventAt?: Micros): void {
    const noted = this.#of(tenantId, deviceId);
    noted.seenAt = Math.max(noted.seenAt, receivedAt.getTime());
    if (eventAt === undefined) return;
    const skewMs = Math.round(eventAt / 1000 - receivedAt.getTime());
    if (noted.skewMs === undefined || skewMs > noted.skewMs) noted.skewMs = skewMs;
  }

  /** Reads of it have arrived. */
  read(tenantId: string, deviceId: string, receivedAt: Date, eventAt: Micros): void {
    this.heard(tenantId, deviceId, receivedAt, eventAt);
    this.#of(tenantId, deviceId).readAt = receivedAt.getTime();
  }

  ignored(tenantId: string, deviceId: string, reads: number): void {
    this.#of(tenantId, deviceId).ignored += reads;
  }

  /** The clocks of the devices that this process has heard of, as of their last messages. */
  get clocks(): readonly Clock[] {
    return [...this.#clocks.values()];
  }

  /** Writes what was noted; what cannot be written now is kept for the next time. */
  async flush(): Promise<void> {
    const noted = [...this.#noted.values()].filter(({ seenAt }) => seenAt > 0);
    if (noted.length === 0) return;
    this.#noted = new Map();
    this.#judgeClocks(noted);
    try {
      await store(this.#options.database, noted);
    } catch (error) {
      for (const each of noted) this.#putBack(each);
      throw error;
    }
  }

  /** Runs until the signal fires, then writes the rest. */
  async run(signal: AbortSignal): Promise<void> {
    const { intervalMs = 5000 } = this.#options;
    while (!signal.aborted) {
      await pause(intervalMs, signal);
      await this.flush().catch((error) =>
        this.#logger.warn(
          { reason: messageOf(error) },
          'the states of devices could not be written; trying again',
        ),
      );
    }
  }

  #of(tenantId: string, deviceId: string): Noted {
    const key = `${tenantId}\n${deviceId}`;
    const known = this.#noted.get(key);
    if (known) return known;
    const fresh: Noted = { tenantId, deviceId, seenAt: 0, readAt: undefined, skewMs: undefined, ignored: 0 };
    this.#noted.set(key, fresh);
    return fresh;
  }

  #putBack(old: Noted): void {
    const now = this.#of(old.tenantId, old.deviceId);
    now.seenAt = Math.max(now.seenAt, old.seenAt);
    now.readAt ??= old.readAt;
    now.skewMs ??= old.skewMs;
    now.ignored += old.ignored;
  }

  #judgeClocks(noted: readonly Noted[]): void {
    for (const { tenantId, deviceId, skewMs } of noted) {
      if (skewMs === undefined) continue;
      const key = `${tenantId}\n${deviceId}`;
      this.#clocks.set(key, { tenantId, deviceId, skewMs });
      const now = performance.now();
      const isQuiet = now - (this.#warnedAt.get(key) ?? Number.NEGATIVE_INFINITY) < warnAgainMs;
      if (skewMs <= this.#aheadLimitMs || isQuiet) continue;
      this.#warnedAt.set(key, now);
      this.#logger.warn(
        { tenantId, device: deviceId, aheadSeconds: skewMs / 1000 },
        'the clock of a device is ahead: its reads carry wrong times; set its clock by NTP',
      );
    }
  }
}

/** Relies on device_states_pkey; in key order, so that two processes cannot deadlock. */
async function store(on: Queryable, noted: readonly Noted[]): Promise<void> {
  const time = (ms: number | undefined): string | null =>
    ms === undefined ? null : new Date(ms).toISOString();
  await on.query(
    `insert into iot.device_states as d
       (tenant_id, serial, last_seen_at, last_read_at, clock_skew_ms, clock_measured_at, ignored_reads)
     select n.tenant_id, n.serial, n.seen_at, n.read_at, n.skew_ms, case when n.skew_ms is not null then n.seen_at end, n.ignored
       from unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::bigint[])
            as n (tenant_id, serial, seen_at, read_at, skew_ms, ignored)
      order by n.tenant_id, n.serial
     on conflict (tenant_id, serial) do update
        set last_seen_at = greatest(d.last_seen_at, excluded.last_seen_at),
            last_read_at = greatest(d.last_read_at, excluded.last_read_at),
            clock_skew_ms = coalesce(excluded.clock_skew_ms, d.clock_skew_ms),
            clock_measured_at = coalesce(excluded.clock_measured_at, d.clock_measured_at),
            ignored_reads = d.ignored_reads + excluded.ignored_reads`,
    [
      textArray(noted.map(({ tenantId }) => tenantId)),
      textArray(noted.map(({ deviceId }) => deviceId)),
      plainArray(noted.map(({ seenAt }) => time(seenAt))),
      plainArray(noted.map(({ readAt }) => time(readAt))),
      plainArray(noted.map(({ skewMs }) => skewMs ?? null)),
      plainArray(noted.map(({ ignored }) => ignored)),
    ],
  );
}
