import type { Queryable } from '../../../engine/database/database.ts';
import { lockJob } from '../../../engine/sql/lock-job.ts';
import { gatewayColumns, type StoreGateway } from './gateways.ts';

/** How far a page has come. */
export interface PageProgress {
  readonly page: number;
  readonly acceptedJob: string | null;
  readonly acceptedHash: string | null;
  readonly resyncJob: string | null;
}

export interface PushTarget {
  readonly mac: string;
  readonly store: StoreGateway;
  readonly pages: ReadonlyMap<number, PageProgress>;
}

/** The label of a task, with its gateway; undefined if it was removed or belongs to another tenant. */
export async function loadTarget(on: Queryable, labelId: string): Promise<PushTarget | undefined> {
  const { rows } = await on.query<StoreGateway & PageProgress & { mac: string }>(
    `select ${gatewayColumns}, l.mac, g.page, g.accepted_job as "acceptedJob", g.accepted_hash as "acceptedHash",
            g.resync_job as "resyncJob"
       from labels.labels l join labels.stores s on s.id = l.store_id join labels.pages g on g.label_id = l.id
      where l.id = $1`,
    [labelId],
  );
  const [store] = rows;
  return store && { mac: store.mac, store, pages: new Map(rows.map((row) => [row.page, row])) };
}

export interface Accepted {
  readonly page: number;
  readonly hash: string;
  /** False: the gateway had it already. */
  readonly pushed: boolean;
}

/** Records that the gateway has these images. A page that already shows the same image stays shown. */
export async function saveAccepted(
  tx: Queryable,
  task: { readonly label: string; readonly job: string },
  accepted: readonly Accepted[],
  askAfterMs: number,
): Promise<void> {
  // Lock several pages in order, as all statements do.
  if (accepted.length > 1)
    await tx.query(
      'select 1 from labels.pages where label_id = $1 and page = any ($2) order by page for no key update',
      [task.label, accepted.map(({ page }) => page)],
    );
  const { rows } = await tx.query<{ page: number; state: string }>(
    `update labels.pages g
        set accepted_job = $2, accepted_hash = u.hash, accepted_at = clock_timestamp(), error = null,
            state = case when g.wanted_job > $2 then g.state
                         when u.pushed or g.shown_hash is distinct from u.hash then 'processing' else 'shown' end,
            ask_at = case when u.pushed or g.shown_hash is distinct from u.hash
                          then clock_timestamp() + $6 * interval '1 millisecond' end,
            asked = 0
       from unnest($3::smallint[], $4::text[], $5::boolean[]) as u (page, hash, pushed)
      where g.label_id = $1 and g.page = u.page
     returning g.page, g.state`,
    [
      task.label,
      task.job,
      accepted.map(({ page }) => page),
      accepted.map(({ hash }) => hash),
      accepted.map(({ pushed }) => pushed),
      askAfterMs,
    ],
  );
  await tell(
    tx,
    rows.filter(({ state }) => state === 'shown').map(({ page }) => ({ labelId: task.label, page })),
  );
}

/** Emits `label.shown` or `label.failed` for pages that reached that state in this transaction. */
export async function tell(
  tx: Queryable,
  pages: readonly { readonly labelId: string; readonly page: number }[],
): Promise<void> {
  if (pages.length === 0) return;
  await tx.query('select labels.tell($1, $2)', [
    pages.map(({ labelId }) => labelId),
    pages.map(({ page }) => page),
  ]);
}

/**
 * After a failed attempt the gateway may have the image or not, so the accepted hash is deleted. That costs at most one
 * extra push, so it needs no fence.
 */
export async function forgetAccepted(on: Queryable, label: string, page: number): Promise<void> {
  await on.query(
    'update labels.pages set accepted_hash = null where label_id = $1 and page = $2 and accepted_hash is not null',
    [label, page],
  );
}

/**
 * Records that the task is given up, but only while the task exists: a worker that lost its lease must not overwrite what
 * another has done since. The task is locked first, so that it cannot end meanwhile. Pages that another transaction has
 * locked are not waited for, because that one may wait for the task: they are returned, to be tried again.
 */
export async function saveFailed(
  tx: Queryable,
  task: { readonly label: string; readonly job: string; readonly pages: readonly number[] },
  error: string,
): Promise<readonly number[]> {
  if (!(await lockJob(tx, { id: task.job }))) return [];
  const failed = await tx.query<{ labelId: string; page: number }>(
    `update labels.pages g set state = 'failed', error = $4, ask_at = null
      where (g.label_id, g.page) in (
        select p.label_id, p.page from labels.pages p
         where p.label_id = $1 and p.page = any ($2) and p.wanted_job <= $3 for no key update skip locked)
     returning g.label_id as "labelId", g.page`,
    [task.label, task.pages, task.job, error.slice(0, 2000)],
  );
  await tell(tx, failed.rows);
  const { rows } = await tx.query<{ page: number }>(
    `select p.page from labels.pages p
      where p.label_id = $1 and p.page = any ($2) and p.wanted_job <= $3 and p.page <> all ($4)`,
    [task.label, task.pages, task.job, failed.rows.map(({ page }) => page)],
  );
  return rows.map(({ page }) => page);
}
