import type { Queryable } from '../../../engine/database/database.ts';
import { type Device, type DeviceDirectory, type DeviceOf, deviceKey, loadDevices } from './devices.ts';

export interface CachedDevicesOptions {
  readonly database: Queryable;
  /** Not older than this, even if no notice comes. Default 60,000. */
  readonly expiryMs?: number;
  /** An unknown device is looked for again, at most this often. Default 1,000. */
  readonly missMs?: number;
  /** A clock that only goes forward, in milliseconds. */
  readonly clock?: () => number;
}

interface Loaded {
  readonly devices: Map<string, Device>;
  readonly at: number;
}

/** Keeps devices in memory for a limited time, or until `drop`, which a change notice calls. */
export class CachedDevices implements DeviceDirectory {
  readonly #database: Queryable;
  readonly #expiryMs: number;
  readonly #missMs: number;
  readonly #clock: () => number;
  #loaded: Promise<Loaded> | undefined;

  constructor(options: CachedDevicesOptions) {
    this.#database = options.database;
    this.#expiryMs = options.expiryMs ?? 60_000;
    this.#missMs = options.missMs ?? 1000;
    this.#clock = options.clock ?? (() => performance.now());
  }

  async lookup(
    reads: readonly { readonly tenantId: string; readonly deviceId: string }[],
  ): Promise<DeviceOf> {
    let { devices } = await this.#youngerThan(this.#expiryMs);
    const isMissing = ({ tenantId, deviceId }: (typeof reads)[number]): boolean =>
      !devices.has(deviceKey(tenantId, String(deviceId).trim()));
    if (reads.some(isMissing)) ({ devices } = await this.#youngerThan(this.#missMs));
    return (tenantId, serial) => devices.get(deviceKey(tenantId, serial));
  }

  /** Something has changed: calls from now on get data that is read from now on. */
  drop(): void {
    this.#loaded = undefined;
  }

  async #youngerThan(ms: number): Promise<Loaded> {
    const kept = this.#loaded;
    if (kept) {
      const loaded = await kept.catch(() => undefined);
      if (loaded && this.#clock() - loaded.at < ms) return loaded;
      if (this.#loaded !== kept && this.#loaded) return this.#loaded;
    }
    this.#loaded = this.#load();
    return this.#loaded;
  }

  async #load(): Promise<Loaded> {
    // The age counts from before the query: a change made while it runs may not be in its result.
    const at = this.#clock();
    return { devices: await loadDevices(this.#database), at };
  }
}
