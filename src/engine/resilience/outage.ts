import type { Logger } from '../logger.ts';

/** One warning when a service goes away, one info line when it is back; the rest is for debug. */
export class Outage {
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #messages: { readonly down: string; readonly up: string };
  #reason: string | undefined;

  constructor(logger: Logger, fields: object, messages: { readonly down: string; readonly up: string }) {
    this.#logger = logger;
    this.#fields = fields;
    this.#messages = messages;
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  down(reason: string): void {
    const level = this.#reason === undefined ? 'warn' : 'debug';
    this.#reason = reason;
    this.#logger[level]({ ...this.#fields, reason }, this.#messages.down);
  }

  up(): void {
    if (this.#reason === undefined) return;
    this.#reason = undefined;
    this.#logger.info(this.#fields, this.#messages.up);
  }
}
