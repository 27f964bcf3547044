import { TallymanError } from '../../engine/errors.ts';

export interface TurnLimits {
  /** Requests that use the database at once, of all tenants together. */
  readonly total: number;
  /** The same of one tenant. */
  readonly perTenant: number;
  /** Requests of one tenant that may wait for a turn; more are refused. */
  readonly waiting: number;
}

/**
 * Gives requests their turn on the database, so that no tenant takes every connection: slow or many requests of one
 * tenant wait in a line of their own. Free turns go round the lines, one each.
 */
export class Turns {
  readonly #limits: TurnLimits;
  readonly #takenBy = new Map<string, number>();
  /** Tenants whose requests wait, in the order in which they get the next free turn. */
  readonly #lines = new Map<string, (() => void)[]>();
  #taken = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  async run<T>(tenantId: string, work: () => Promise<T>): Promise<T> {
    await this.#take(tenantId);
    try {
      return await work();
    } finally {
      this.#giveBack(tenantId);
    }
  }

  async #take(tenantId: string): Promise<void> {
    const line = this.#lines.get(tenantId);
    if (!line && this.#hasRoom(tenantId)) return this.#grant(tenantId);
    if ((line?.length ?? 0) >= this.#limits.waiting)
      throw new TallymanError(
        'TENANT_BUSY',
        `${this.#limits.waiting} requests of this tenant already wait for their turn; send fewer at once, and try again in a moment`,
      );
    await new Promise<void>((granted) => {
      if (line) line.push(granted);
      else this.#lines.set(tenantId, [granted]);
    });
  }

  #giveBack(tenantId: string): void {
    this.#taken -= 1;
    const left = (this.#takenBy.get(tenantId) ?? 1) - 1;
    if (left > 0) this.#takenBy.set(tenantId, left);
    else this.#takenBy.delete(tenantId);
    this.#serveLines();
  }

  #serveLines(): void {
    for (const [tenantId, line] of this.#lines) {
      if (this.#taken >= this.#limits.total) return;
      if (!this.#hasRoom(tenantId)) continue;
      // To the end of the order; the loop comes by again if there is room.
      this.#lines.delete(tenantId);
      const granted = line.shift();
      if (line.length > 0) this.#lines.set(tenantId, line);
      this.#grant(tenantId);
      granted?.();
    }
  }

  #hasRoom(tenantId: string): boolean {
    return this.#taken < this.#limits.total && (this.#takenBy.get(tenantId) ?? 0) < this.#limits.perTenant;
  }

  #grant(tenantId: string): void {
    this.#taken += 1;
    this.#takenBy.set(tenantId, (this.#takenBy.get(tenantId) ?? 0) + 1);
  }
}
