import { setImmediate as nextRound } from 'node:timers/promises';

/** A tenant is there for this long after its last request. */
const recentMs = 5_000;

/** Tells whether a tenant is the only one that has sent requests in the last few seconds. */
export class RecentTenants {
  readonly #now: () => number;
  #last: { readonly tenantId: string; at: number } | undefined;
  /** The last request of any tenant but the last one. */
  #anotherAt = Number.NEGATIVE_INFINITY;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  note(tenantId: string): void {
    const at = this.#now();
    if (this.#last?.tenantId === tenantId) this.#last.at = at;
    else {
      if (this.#last) this.#anotherAt = this.#last.at;
      this.#last = { tenantId, at };
    }
  }

  isAlone(tenantId: string): boolean {
    const last = this.#last;
    const anotherAt = last && last.tenantId !== tenantId ? last.at : this.#anotherAt;
    return this.#now() - anotherAt > recentMs;
  }

  /** Lets requests of others come in between, if there are others; undefined: go on. */
  letOthersPass(tenantId: string): Promise<void> | undefined {
    return this.isAlone(tenantId) ? undefined : nextRound();
  }
}
