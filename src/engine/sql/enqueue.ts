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

/** One job, in the transaction that `on` is in. Answers its id. */
export async function enqueue(
  on: Queryable,
  args: EnqueueArguments,
  { maxPayloadBytes }: { readonly maxPayloadBytes: number },
): Promise<string> {
  const values = enqueueFunction.values({ ...fromKind, ...args } as All).map((value) => value ?? null);
  const { rows } = await on.query<{ answer: unknown }>(
    `${enqueueFunction.statement.text}
       from (select set_config('tallyman.max_payload_bytes', $${values.length + 1}, true)) limits`,
    [...values, String(maxPayloadBytes)],
  );
  return String(rows[0]?.answer);
}
