import type { ServerResponse } from 'node:http';
import { setImmediate as othersFirst } from 'node:timers/promises';
import { turnsOf } from './lines.ts';
import { pausesBesideOthers } from './pauses.ts';
import type { RecentTenants } from './recent-tenants.ts';
import { Turns } from './turns.ts';

/** A larger body, or answer, takes milliseconds of the event loop, during which no other request is answered. */
const heavyBytes = 16 * 1024;
/** Routes, by line, whose last answer was large; when there are more, the oldest are forgotten. */
const mostRemembered = 10_000;

export interface HeavyRequest {
  /** See `lineOf`. */
  readonly line: string;
  readonly response: ServerResponse;
}

/**
 * Requests with a large body, or with an answer that is expected to be large, take turns: they are read into values, checked, worked on and
 * written as text one after another for each tenant, while the requests of others come in between. A tenant that is alone
 * has several at once, since one can be parsed while the database works on another.
 *
 * A turn begins after the body has arrived and ends before the answer is on its way: a slow network holds none.
 */
export class HeavyRequests {
  readonly #recent: RecentTenants;
  readonly #turns: Turns;
  readonly #held = new WeakMap<ServerResponse, { readonly giveBack: () => void; isHandled: boolean }>();
  /** `line action`. */
  readonly #largeAnswers = new Set<string>();

  constructor(
    recent: RecentTenants,
    {
      atOnce,
      waiting,
      percent,
    }: { readonly atOnce: number; readonly waiting: number; readonly percent: number },
  ) {
    this.#recent = recent;
    this.#turns = new Turns({
      // Each tenant has one: those whose heavy requests wait for locks do not hold up others.
      total: Number.POSITIVE_INFINITY,
      perTenant: (line) => (recent.isAlone(line) ? turnsOf(line, atOnce) : 1),
      waiting,
      pauseMs: pausesBesideOthers(recent, percent),
    });
  }

  isHeavy(bytes: number): boolean {
    return bytes > heavyBytes;
  }

  letOthersPass(line: string): Promise<void> | undefined {
    return this.#recent.letOthersPass(line);
  }

  /** Waits for the turn of a request that is not handled yet; false: the caller is gone, and nothing is to be done. */
  async enter({ line, response }: HeavyRequest): Promise<boolean> {
    const giveBack = await this.#turns.take(line, () => response.destroyed);
    // The one before ended in the same turn of the event loop: what has arrived meanwhile comes first.
    await othersFirst();
    if (response.destroyed) {
      giveBack();
      return false;
    }
    const held = { giveBack, isHandled: false };
    this.#held.set(response, held);
    // If the caller goes away before the handler runs, the turn is free at once; later only `leave` ends it.
    response.once('close', () => {
      if (!held.isHandled) giveBack();
    });
    return true;
  }

  /** Its handler runs: from now on only `leave` ends the turn. */
  async handle(request: HeavyRequest, action: string): Promise<void> {
    const { response, line } = request;
    const held = this.#held.get(response);
    if (held) held.isHandled = true;
    else if (this.#largeAnswers.has(`${line} ${action}`)) {
      const giveBack = await this.#turns.take(line, () => response.destroyed);
      this.#held.set(response, { giveBack, isHandled: true });
    } else return;
    await this.letOthersPass(line);
  }

  /** Safe to call more than once, and for requests that have no turn. */
  leave(response: ServerResponse): void {
    this.#held.get(response)?.giveBack();
    this.#held.delete(response);
  }

  /** The next answer is expected to be as large as this one. */
  answered(line: string, action: string, bytes: number): void {
    const name = `${line} ${action}`;
    if (!this.isHeavy(bytes)) this.#largeAnswers.delete(name);
    else {
      const [oldest] = this.#largeAnswers;
      if (this.#largeAnswers.size >= mostRemembered && oldest !== undefined)
        this.#largeAnswers.delete(oldest);
      this.#largeAnswers.add(name);
    }
  }
}
