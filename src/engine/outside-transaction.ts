import { TallymanError } from './errors.ts';

/**
 * Thrown inside a transaction by what must first do something that takes long: the transaction is rolled back, `work` runs
 * without one, and then everything runs again and finds it done. So no lock and no connection is held meanwhile.
 */
export class OutsideTransaction extends TallymanError {
  override readonly name = 'OutsideTransaction';
  readonly work: () => Promise<unknown>;

  constructor(work: () => Promise<unknown>) {
    super('BAD_STATE', 'what this depends on changed again and again while it was prepared; try again');
    this.work = work;
  }
}

/** More only if others change what `attempt` reads, each time. */
const mostRounds = 5;

/** Runs `attempt`, a transaction, and does what it asks for between two runs of it. */
export async function withWorkOutside<T>(attempt: () => Promise<T>): Promise<T> {
  for (let round = 1; ; round += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof OutsideTransaction) || round >= mostRounds) throw error;
      await error.work();
    }
  }
}
