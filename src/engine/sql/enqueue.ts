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
const guardedText = `
  select case when $${count + 2} or coalesce(tallyman.is_public_kind($1), true)
              then (${enqueueFunction.statement.text}) end as id
    from (select set_config('tallyman.max_payload_bytes', $${count + 1}, true)) limits`;

interface EnqueueLimits {
  readonly maxPayloadBytes: number;
}

/** Enqueues one job, in the transaction that `on` is in. Returns its id. */
export async function enqueue(on: Queryable, args: EnqueueArguments, limits: EnqueueLimits): Promise<string> {
  return (await send(on, args, limits, true)) ?? '';
}

/** The same for a caller from outside, in one statement. Undefined: the kind is registered and internal. */
export const enqueuePublic = (
  on: Queryable,
  args: EnqueueArguments,
  limits: EnqueueLimits,
): Promise<string | undefined> => send(on, args, limits, false);

async function send(
  on: Queryable,
  args: EnqueueArguments,
  { maxPayloadBytes }: EnqueueLimits,
  mayBeInternal: boolean,
): Promise<string | undefined> {
  const values = enqueueFunction.values({ ...fromKind, ...args } as All).map((value) => value ?? null);
  const { rows } = await on.query<{ id: string | null }>(guardedText, [
    ...values,
    String(maxPayloadBytes),
    mayBeInternal,
  ]);
  return rows[0]?.id ?? undefined;
}
