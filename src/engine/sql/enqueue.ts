import { wakeAfterCommit } from '../database/after-commit.ts';
import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const enqueueFunction = new SqlFunction(
  'enqueue',
  {
    kind: 'text',
    payload: 'json?',
    queue: 'text?',
    priority: 'integer?',
    lane: 'text?',
    delay: 'interval?',
    scheduledAt: 'timestamp with time zone?',
    dedupeKey: 'text?',
    tenantId: 'text?',
    maxAttempts: 'integer?',
    correlationId: 'text?',
    latestOnly: 'boolean?',
    trace: 'text?',
  },
  { prefix: '' },
);

type All = ArgumentsOf<typeof enqueueFunction>;
type Always = 'kind' | 'payload' | 'tenantId';

/** What is null, or not given, comes from the kind. */
export type EnqueueArguments = Pick<All, Always> & {
  readonly [N in Exclude<keyof All, Always>]?: All[N] | undefined;
};

/** Of all but those that are always given. One text for every call: it can be prepared. */
const fromKind = {
  ...{ queue: null, priority: null, lane: null, delay: null, scheduledAt: null, dedupeKey: null },
  ...{ maxAttempts: null, correlationId: null, latestOnly: null, trace: null },
};

const count = Object.keys(enqueueFunction.parameters).length;
const limitedText = `
  select (${enqueueFunction.statement.text}) as id,
         coalesce($3, (select k.queue from tallyman.kinds k where k.name = $1)) as queue
    from (select set_config('tallyman.max_payload_bytes', $${count + 1}, true)) limits`;

/** Enqueues one job, in the transaction that `on` is in, and wakes workers after its commit. Returns the job's id. */
export async function enqueue(
  on: Queryable,
  args: EnqueueArguments,
  { maxPayloadBytes }: { readonly maxPayloadBytes: number },
): Promise<string> {
  const values = enqueueFunction.values({ ...fromKind, ...args } as All).map((value) => value ?? null);
  const { rows } = await on.query<{ id: string; queue: string }>(limitedText, [
    ...values,
    String(maxPayloadBytes),
  ]);
  const { id = '', queue = '' } = rows[0] ?? {};
  wakeAfterCommit(on, [{ queue, jobId: id }]);
  return id;
}
