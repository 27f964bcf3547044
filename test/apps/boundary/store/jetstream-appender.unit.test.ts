import { expect, test } from 'vitest';
import { BoundaryError } from '../../../../src/apps/boundary/domain/errors.ts';
import { Appender, mostEntries } from '../../../../src/apps/boundary/store/jetstream/appender.ts';
import { newHead } from '../../../../src/apps/boundary/store/jetstream/head.ts';
import type { JetStreamCluster } from '../../../../src/apps/boundary/store/jetstream/session.ts';
import { Turns } from '../../../../src/apps/boundary/store/jetstream/turns.ts';
import type { Writer } from '../../../../src/apps/boundary/store/jetstream/writer.ts';
import { type Prepared, prepare } from '../../../../src/engine/log/entry.ts';
import { Sequence } from '../../../../src/engine/log/sequence.ts';

/** A cluster that has no majority until the deadline of the first commit, and has one from then on. */
function lateMajority() {
  const commits: string[][] = [];
  let attempts = 0;
  const writer = {
    names: { stream: 'out' },
    alone: (work: () => Promise<unknown>) => work(),
    watchConflicts: () => () => {},
    session: async () => {
      attempts += 1;
      if (attempts === 1) throw new BoundaryError('UNAVAILABLE', 'storage_unavailable', 'no majority');
      return {};
    },
    head: async () => ({ head: { ...newHead(), last: commits.flat().length }, sequence: 0 }),
    append: async (_: unknown, __: unknown, entries: readonly Prepared[]) => {
      commits.push(entries.map(({ key }) => key));
      return 'done';
    },
    forget: () => {},
  };
  const cluster = { retryUntilDeadline: () => Promise.reject };
  const appender = new Appender(
    cluster as unknown as JetStreamCluster,
    writer as unknown as Writer,
    new Turns(),
    () => {},
  );
  return { appender, commits };
}

test('BND-14: after a commit that failed, the rest of its call waits, and other calls do not', async () => {
  const { appender, commits } = lateMajority();
  const prepared = (key: string): Prepared =>
    prepare({ key, payload: 1 }, { keyPrefix: '', maxPayloadBytes: 100 });
  const sequence = new Sequence();
  const call = Array.from({ length: mostEntries + 2 }, (_, n) =>
    appender.append({ ...prepared(`c${n}`), turn: { sequence, n } }),
  );
  const other = appender.append(prepared('other'));
  const codes = (await Promise.allSettled(call)).map((each) =>
    each.status === 'rejected' ? each.reason.code : 'in',
  );
  expect([...new Set(codes.slice(0, mostEntries))]).toEqual(['UNAVAILABLE']);
  expect(codes.slice(mostEntries)).toEqual(['HELD_BACK', 'HELD_BACK']);
  expect(await other).toEqual({ offset: 1, existing: false });
  expect(commits).toEqual([['other']]);
});
