import type { Queryable } from '../../../engine/database/database.ts';

export interface BreakerOptions {
  /** Failures in a row after which the breaker of an endpoint opens and its deliveries wait. Default 10. */
  readonly failures?: number;
  /** How long they wait at first; twice as long after each failed probe. Default 30 s. */
  readonly openMs?: number;
  /** Default 5 min. */
  readonly maxOpenMs?: number;
  /** A delivery that has waited this long becomes a dead letter. Default 3 days. */
  readonly giveUpMs?: number;
}

/**
 * One breaker per endpoint, stored in the endpoint's row and shared by the fleet:
 *
 *   closed ── failures in a row ──▶ open ── its time is past ──▶ probing: one delivery goes through
 *      ▲                             ▲                              │
 *      └───────── success ───────────┼──────────────────────────────┤
 *                                    └── failure: twice as long ────┘
 */
export class Breaker {
  readonly giveUpMs: number;
  readonly #failures: number;
  readonly #openMs: number;
  readonly #maxOpenMs: number;

  constructor(options: BreakerOptions = {}) {
    this.#failures = options.failures ?? 10;
    this.#openMs = options.openMs ?? 30_000;
    this.#maxOpenMs = options.maxOpenMs ?? 300_000;
    this.giveUpMs = options.giveUpMs ?? 3 * 24 * 3_600_000;
  }

  async takeProbe(on: Queryable, endpoint: string): Promise<boolean> {
    const { rows } = await on.query<{ taken: boolean }>('select tallyman_webhooks.take_probe($1) as taken', [
      endpoint,
    ]);
    return rows[0]?.taken === true;
  }

  async failed(on: Queryable, endpoint: string, isProbe: boolean): Promise<void> {
    await on.query('select tallyman_webhooks.count_failure($1, $2, $3, $4, $5)', [
      endpoint,
      isProbe,
      this.#failures,
      this.#openMs,
      this.#maxOpenMs,
    ]);
  }

  async succeeded(on: Queryable, endpoint: string): Promise<void> {
    await on.query('select tallyman_webhooks.count_success($1)', [endpoint]);
  }
}
