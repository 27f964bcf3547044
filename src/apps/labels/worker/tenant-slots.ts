/**
 * Slots that tenants share. A tenant takes one more only while at least as many are free as it has: the first tenant gets
 * half of them, the next half of the rest, and so on. So gateways of one tenant that are slow, by mistake or on purpose, never
 * hold the slots that others need. The slots of a tenant go to its work in order of arrival.
 */
export class TenantSlots {
  #free: number;
  readonly #taken = new Map<string, number>();
  /** The order of the tenants is the order of their turns. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor(slots: number) {
    this.#free = slots;
  }

  async run<T>(tenantId: string, work: () => Promise<T>): Promise<T> {
    await new Promise<void>((begin) => {
      const line = this.#waiting.get(tenantId) ?? [];
      line.push(begin);
      this.#waiting.set(tenantId, line);
      this.#dispatch();
    });
    try {
      return await work();
    } finally {
      const left = (this.#taken.get(tenantId) ?? 1) - 1;
      if (left === 0) this.#taken.delete(tenantId);
      else this.#taken.set(tenantId, left);
      this.#free += 1;
      this.#dispatch();
    }
  }

  #dispatch(): void {
    for (;;) {
      const next = [...this.#waiting].find(([tenantId]) => (this.#taken.get(tenantId) ?? 0) < this.#free);
      if (!next) return;
      const [tenantId, line] = next;
      const begin = line.shift();
      this.#waiting.delete(tenantId);
      // To the end: every other tenant has its turn first.
      if (line.length > 0) this.#waiting.set(tenantId, line);
      if (!begin) continue;
      this.#free -= 1;
      this.#taken.set(tenantId, (this.#taken.get(tenantId) ?? 0) + 1);
      begin();
    }
  }
}
