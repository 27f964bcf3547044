/** A tenant that has had a task within this time is taken into account. */
const recentMs = 60 * 60_000;
const shortestMs = 500;
const longestMs = 120_000;
/** Of the last holding time in the average. */
const weight = 0.2;

interface TenantState {
  held: number;
  /** How long it holds a slot, on average. */
  averageMs: number;
  /** When the task that was put off last is expected back. */
  nextAt: number;
}

/**
 * How many slots of a worker one tenant may hold: all of them while it is the only one here, half of them if another tenant has
 * had a task within the hour. A slot is held for as long as a gateway takes to answer, which is up to its tenant. Tasks beyond
 * the share are put off without an attempt, so that their slots are free for the tasks behind them. They come back at the rate
 * at which their tenant's slots become free: any sooner, most of them would only be put off again.
 */
export class PushShares {
  readonly #slots: number;
  readonly #tenants = new Map<string, TenantState>();
  /** When a tenant had its last task; the latest is the last. */
  readonly #seen = new Map<string, number>();

  constructor(slots: number) {
    this.#slots = slots;
  }

  /** 0: the tenant has a slot, and gives it back. Otherwise how long its task is put off. */
  take(tenantId: string, now: number): number {
    this.#see(tenantId, now);
    const tenant = this.#tenants.get(tenantId) ?? { held: 0, averageMs: 1000, nextAt: now };
    this.#tenants.set(tenantId, tenant);
    const share = this.#seen.size > 1 ? Math.max(1, Math.floor(this.#slots / 2)) : Number.POSITIVE_INFINITY;
    if (tenant.held < share) {
      tenant.held += 1;
      return 0;
    }
    tenant.nextAt = Math.min(Math.max(tenant.nextAt, now) + tenant.averageMs / share, now + longestMs);
    return Math.max(shortestMs, Math.round(tenant.nextAt - now));
  }

  give(tenantId: string, heldMs: number): void {
    const tenant = this.#tenants.get(tenantId);
    if (!tenant) return;
    tenant.held -= 1;
    tenant.averageMs += (heldMs - tenant.averageMs) * weight;
  }

  #see(tenantId: string, now: number): void {
    this.#seen.delete(tenantId);
    this.#seen.set(tenantId, now);
    for (const [oldest, at] of this.#seen) {
      if (now - at < recentMs) return;
      this.#seen.delete(oldest);
      if (this.#tenants.get(oldest)?.held === 0) this.#tenants.delete(oldest);
    }
  }
}
