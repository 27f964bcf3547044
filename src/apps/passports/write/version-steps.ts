import { appendAudit } from '../audit/append.ts';
import { passportError, rethrow } from '../errors.ts';
import { tellVersions } from '../events.ts';
import { activateVersion } from '../jobs/kinds.ts';
import { requirePassport } from '../store/passports.ts';
import { type PassportVersion, requireVersion } from '../store/versions.ts';
import type { Work } from '../work.ts';

/*
 * Steps that a person asks for. What cannot be done is refused here, with what to do instead: a job would find nothing to
 * do, and end as if all were well.
 */

/** Enqueues the job that lets a signed version count, and returns its id. One that counts already stays as it is. */
export async function requestActivation(work: Work, id: string): Promise<string> {
  const version = await requireVersion(work.on, id);
  await requireActivatable(work, version);
  return (await work.enqueue(activateVersion, { versions: [id] })).id;
}

async function requireActivatable({ on }: Work, version: PassportVersion): Promise<void> {
  const { id, state, passportId, number, qrText, error } = version;
  if (state === 'ACTIVE') return;
  if (state === 'REVOKED' || state === 'SUPERSEDED') throw ended(version, 'it never counts again');
  const { item } = await requirePassport(on, passportId);
  if (item?.ceasedAt)
    throw passportError(
      'PASSPORT_CEASED',
      `passport ${passportId} has ceased (${item.ceasedAt.toISOString()}): no version of it counts any more`,
      { state: 'CEASED' },
    );
  if (state === 'COMPILING' || qrText === null) throw notFinished(id, state, error);
  const { rows } = await on.query<{ id: string; number: number }>(
    `select v.id, v.number from passports.versions v
      where v.tenant_id = $1 and v.passport_id = $2 and v.number > $3 and v.state in ('ACTIVE', 'SUPERSEDED')
      order by v.number desc limit 1`,
    [on.tenantId, passportId, number],
  );
  const [newer] = rows;
  if (newer)
    throw passportError(
      'CONFLICT',
      `version ${id} has the number ${number}, and version ${newer.id} with the number ${newer.number} came after it and has ` +
        'counted: a passport does not go back. Request a new version',
      { state, newer: newer.id },
    );
}

/** Revokes a version for good. Its code still names it, and readers are told. The same request again changes nothing. */
export async function revokeVersion({ on }: Work, id: string, reason: string): Promise<void> {
  const version = await requireVersion(on, id);
  const { state, receiptHash } = version;
  if (state === 'REVOKED' && version.reason === reason) return;
  if (state === 'REVOKED') throw ended(version, 'the reason that was given then stays');
  if (state === 'SUPERSEDED') throw ended(version, 'it does not count any more. Revoke the one that counts');
  if (state === 'COMPILING' || receiptHash === null) throw notFinished(id, state, version.error);
  const { rowCount } = await on
    .query(
      `update passports.versions v set state = 'REVOKED', reason = $3, ended_at = now()
        where v.tenant_id = $1 and v.id = $2 and v.state = $4`,
      [on.tenantId, id, reason, state],
    )
    .catch(rethrow);
  if (rowCount === 0)
    throw passportError(
      'CONFLICT',
      `version ${id} was ${state} and has just changed: look at it, and try again`,
    );
  await appendAudit(on, [{ aggregate: ['version', id], type: 'version.revoked', data: { reason } }]);
  await tellVersions(on, 'revoked', [
    { ...version, gtin: version.product.gtin, serial: version.item?.serial ?? null, receiptHash },
  ]);
}

const ended = (
  { id, state, reason, endedAt, passportId, item, product }: PassportVersion,
  so: string,
): Error =>
  passportError(
    'VERSION_ENDED',
    `version ${id} was ${state === 'REVOKED' ? 'revoked' : 'superseded'} (${[endedAt?.toISOString(), reason]
      .filter(Boolean)
      .join(', ')}): ${so}. For a new version, ask for one: POST /v1/passports/${
      item === null ? `products/${product.id}` : `items/${passportId}`
    }/versions, or tallyman passports compile`,
    { state, reason, ended_at: endedAt },
  );

const notFinished = (id: string, state: string, error: PassportVersion['error']): Error =>
  passportError(
    'VERSION_NOT_SIGNED',
    error
      ? `version ${id} could not be finished (${error.code}: ${error.message}). Remove the cause, then run its job again: tallyman jobs retry`
      : `version ${id} is ${state}, and its signature or its code is still being made: it becomes active by itself after that`,
    { state },
  );
