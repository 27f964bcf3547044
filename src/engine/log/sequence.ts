/** Entries of one call whose order counts, although they share commits with those of other callers. */
import { TallymanError } from '../errors.ts';
import type { Answer } from './answers.ts';
import type { Prepared } from './entry.ts';

/** An entry on its way to a commit. */
export interface Queued extends Prepared {
  readonly turn?: Turn;
}

/** The place of an entry in its call. */
export interface Turn {
  readonly sequence: Sequence;
  readonly n: number;
}

/**
 * Once an entry of a call cannot be appended now, those behind it must not be: in a later commit they would get lower offsets
 * than the one that is appended again.
 */
export class Sequence {
  #stopped: { readonly n: number; readonly key: string } | undefined;

  stop(n: number, key: string): void {
    if (!this.#stopped || n < this.#stopped.n) this.#stopped = { n, key };
  }

  /** Undefined: nothing before it was stopped. */
  heldBack(n: number): TallymanError | undefined {
    if (!this.#stopped || n <= this.#stopped.n) return undefined;
    const { key } = this.#stopped;
    return new TallymanError(
      'HELD_BACK',
      `entry "${key}" of the same call, which comes before it, was not appended: append both again.`,
      { details: { behind: key } },
    );
  }
}

/** Sends a part without the entries that are held back; what fails in it holds back what follows in its call. */
export async function sendPart(
  part: readonly Queued[],
  send: (entries: Queued[]) => Promise<Answer[]>,
): Promise<Answer[]> {
  const held = part.map(({ turn }) => turn?.sequence.heldBack(turn.n));
  const going = part.filter((_, i) => held[i] === undefined);
  const answers = going.length > 0 ? await send(going) : [];
  for (const [i, { turn, key }] of going.entries()) {
    const answer = answers[i];
    if (answer instanceof Error && mayPass(answer)) turn?.sequence.stop(turn.n, key);
  }
  const sent = answers.values();
  return held.map((error) => error ?? (sent.next().value as Answer));
}

/** An entry that can never be appended holds back nothing. */
const mayPass = (error: Error): boolean =>
  !(error instanceof TallymanError && error.code === 'CONFLICTING_DUPLICATE') && !isRefusal(error);

/** Errors about the data of a statement: bad values (22), violated constraints (23), limits such as nesting (54). */
export const isRefusal = (error: unknown): boolean => /^(22|23|54)/.test(codeOf(error));

export const codeOf = (error: unknown): string => (error as { code?: string }).code ?? '';
