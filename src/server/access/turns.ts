import { TallymanError } from '../../engine/errors.ts';

export interface TurnLimits {
  /** Requests that are worked on at once, of all tenants together. */
  readonly total: number;
  /** The same of one tenant, or of one line (see `lineOf`); a function: as things are now. */
  readonly perTenant: number | ((line: string) => number);
  /** Requests of one tenant that may wait for a turn; more are refused. */
  readonly waiting: number;
  /** How long the tenant pauses after a turn that took so long, before that turn is free for its next request. */
  readonly pauseMs?: (tenantId: string, tookMs: number) => number;
}

interface Waiting {
  readonly granted: () => void;
  readonly isGone: () => boolean;
}

/**
 * Gives requests their turn on something that tenants share, so that no tenant takes all of it: slow or many requests of one
 * tenant wait in a line of their own. Free turns go round the lines, one each.
 */
export class Turns {
  readonly #limits: TurnLimits;
  /** Turns of each tenant that are taken, or not free yet because it pauses. */
  readonly #takenBy = new Map<string, number>();
  /** Tenants whose requests wait, in the order in which they get the next free turn. */
  readonly #lines = new Map<string, Waiting[]>();
  #taken = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  async run<T>(tenantId: string, work: () => Promise<T>): Promise<T> {
    const giveBack = await this.take(tenantId);
    try {
      return await work();
    } finally {
      giveBack();
    }
  }

  /**
   * Returns what gives the turn back; calling it again does nothing. A request whose caller is gone makes room for another one
   * when the line is full, and gets no turn then.
   */
  async take(tenantId: string, isGone: () => boolean = () => false): Promise<() => void> {
    await this.#wait(tenantId, isGone);
    const begunAt = performance.now();
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.#giveBack(tenantId, performance.now() - begunAt);
    };
  }

  async #wait(tenantId: string, isGone: () => boolean): Promise<void> {
    let line = this.#lines.get(tenantId) ?? [];
    if (line.length === 0 && this.#hasRoom(tenantId)) return this.#grant(tenantId);
    if (line.length >= this.#limits.waiting) line = line.filter((each) => !each.isGone());
    if (line.length >= this.#limits.waiting)
      throw new TallymanError(
        'TENANT_BUSY',
        `${this.#limits.waiting} requests of this tenant already wait for their turn; send fewer at once, and try again in a moment`,
      );
    await new Promise<void>((granted) => {
      line.push({ granted, isGone });
      this.#lines.set(tenantId, line);
    });
  }

  #giveBack(tenantId: string, tookMs: number): void {
    this.#taken -= 1;
    const pauseMs = this.#limits.pauseMs?.(tenantId, tookMs) ?? 0;
    const free = () => {
      const left = (this.#takenBy.get(tenantId) ?? 1) - 1;
      if (left > 0) this.#takenBy.set(tenantId, left);
      else this.#takenBy.delete(tenantId);
      this.#serveLines();
    };
    if (pauseMs < 1) return free();
    setTimeout(free, pauseMs);
    this.#serveLines();
  }

  #serveLines(): void {
    for (const [tenantId, line] of this.#lines) {
      if (this.#taken >= this.#limits.total) return;
      if (!this.#hasRoom(tenantId)) continue;
      // To the end of the order; the loop comes by again if there is room.
      this.#lines.delete(tenantId);
      const next = line.shift();
      if (line.length > 0) this.#lines.set(tenantId, line);
      this.#grant(tenantId);
      next?.granted();
    }
  }

  #hasRoom(tenantId: string): boolean {
    const { total, perTenant } = this.#limits;
    const most = typeof perTenant === 'number' ? perTenant : perTenant(tenantId);
    return this.#taken < total && (this.#takenBy.get(tenantId) ?? 0) < most;
  }

  #grant(tenantId: string): void {
    this.#taken += 1;
    this.#takenBy.set(tenantId, (this.#takenBy.get(tenantId) ?? 0) + 1);
  }
}
