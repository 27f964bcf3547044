import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import { itemProblems } from '../compile/compile-input.ts';
import { type BatteryStatus, batteryStatuses, type Item } from '../compile/types.ts';
import { notFound, passportError, rethrow } from '../errors.ts';
import { requireProduct } from '../store/products.ts';
import type { Work } from '../work.ts';

/** The id of the model's passport, which is made with the first use. */
export async function modelPassport({ on, fresh }: Work, productId: string): Promise<string> {
  const { rows } = await on.query<{ id: string }>(
    `insert into passports.passports (id, tenant_id, product_id) values ($1, $2, $3)
     on conflict (tenant_id, product_id, serial) do nothing returning id`,
    [fresh.id(`passport|${productId}`), on.tenantId, productId],
  );
  const [added] = rows;
  if (added) {
    await appendAudit(on, [
      { aggregate: ['passport', added.id], type: 'passport.model_added', data: { product: productId } },
    ]);
    return added.id;
  }
  const { rows: known } = await on.query<{ id: string }>(
    'select p.id from passports.passports p where p.tenant_id = $1 and p.product_id = $2 and p.serial is null',
    [on.tenantId, productId],
  );
  return (known[0] as { id: string }).id;
}

export interface AddedItems {
  readonly added: number;
  /** Serial numbers that were there already; nothing was changed. */
  readonly existing: readonly string[];
}

/** Registers batteries of a model. A serial number that is given twice is refused, one that exists is left as it is. */
export async function addItems(
  { on, fresh }: Work,
  productId: string,
  items: readonly Item[],
): Promise<AddedItems> {
  const { gtin } = await requireProduct(on, productId);
  const seen = new Set<string>();
  for (const [at, item] of items.entries()) {
    const problems = itemProblems(item);
    const doubled = seen.has(item.serial) ? ['the serial number is given twice'] : [];
    if (problems.length + doubled.length > 0)
      throw passportError(
        'VALIDATION_ERROR',
        `item ${at + 1}, serial number "${item.serial}": ${[...problems, ...doubled].join('; ')}`,
      );
    seen.add(item.serial);
  }
  const { rows } = await on.query<{ serial: string; id: string }>(
    `insert into passports.passports (id, tenant_id, product_id, serial)
     select u.id, $1, $2, u.serial from unnest($3::uuid[], $4::text[]) as u (id, serial)
     on conflict (tenant_id, product_id, serial) do nothing returning serial, id`,
    [
      on.tenantId,
      productId,
      items.map(({ serial }) => fresh.id(`passport|${productId}|${serial}`)),
      items.map(({ serial }) => serial),
    ],
  );
  const idOf = new Map(rows.map(({ serial, id }) => [serial, id]));
  const fresher = items.filter(({ serial }) => idOf.has(serial));
  await on.query(
    `insert into passports.items (passport_id, tenant_id, gtin, serial, manufactured_on, manufactured_at, status)
     select u.id, $1, $2, u.serial, u.made_on, u.made_at, u.status
       from unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[]) as u (id, serial, made_on, made_at, status)`,
    [
      on.tenantId,
      gtin,
      fresher.map(({ serial }) => idOf.get(serial)),
      fresher.map(({ serial }) => serial),
      fresher.map(({ manufacturedOn }) => manufacturedOn),
      fresher.map(({ manufacturedAt }) => manufacturedAt),
      fresher.map(({ status }) => status),
    ],
  );
  await appendAudit(
    on,
    fresher.map(({ serial, status, manufacturedOn, manufacturedAt }) => ({
      aggregate: ['passport', idOf.get(serial) as string],
      type: 'passport.item_added',
      data: { gtin, made_at: manufacturedAt, made_on: manufacturedOn, product: productId, serial, status },
    })),
  );
  return {
    added: fresher.length,
    existing: items.filter(({ serial }) => !idOf.has(serial)).map(({ serial }) => serial),
  };
}

/** The passport that says so is the next version: request one. */
export async function setItemStatus({ on }: Work, passportId: string, status: BatteryStatus): Promise<void> {
  if (!batteryStatuses.includes(status))
    throw passportError(
      'VALIDATION_ERROR',
      `the status "${status}" is none of ${batteryStatuses.join(', ')}`,
    );
  const { ceasedAt } = await lockedItem(on, passportId);
  if (ceasedAt)
    throw passportError(
      'PASSPORT_CEASED',
      `passport ${passportId} has ceased (${ceasedAt.toISOString()}): the status of its battery stays "waste"`,
    );
  await on
    .query('update passports.items i set status = $3 where i.tenant_id = $1 and i.passport_id = $2', [
      on.tenantId,
      passportId,
      status,
    ])
    .catch(rethrow);
  await appendAudit(on, [
    { aggregate: ['passport', passportId], type: 'passport.status_changed', data: { status } },
  ]);
}

/** Names batteries that this one was made from. */
export async function addPredecessors(
  { on }: Work,
  passportId: string,
  predecessorIds: readonly string[],
): Promise<void> {
  const { rows } = await on.query<{ id: string }>(
    `insert into passports.item_predecessors (passport_id, predecessor_id, tenant_id)
     select i.passport_id, p.passport_id, $1 from passports.items i, passports.items p
      where i.tenant_id = $1 and i.passport_id = $2 and p.tenant_id = $1 and p.passport_id = any ($3::uuid[])
     on conflict (passport_id, predecessor_id) do nothing returning predecessor_id as id`,
    [on.tenantId, passportId, predecessorIds],
  );
  const { rows: known } = await on.query<{ id: string }>(
    `select r.predecessor_id as id from passports.item_predecessors r where r.tenant_id = $1 and r.passport_id = $2`,
    [on.tenantId, passportId],
  );
  const missing = predecessorIds.filter((id) => !known.some((row) => row.id === id));
  if (missing.length > 0) throw notFound('battery', missing.join(', '));
  if (rows.length === 0) return;
  await appendAudit(on, [
    {
      aggregate: ['passport', passportId],
      type: 'passport.predecessors_added',
      data: { predecessors: rows.map(({ id }) => id).sort() },
    },
  ]);
}

/**
 * After recycling: the passport ceases to exist. Its address answers with a tombstone, and no new version becomes active.
 * The same request again changes nothing.
 */
export async function ceaseItem({ on }: Work, passportId: string, reason: string): Promise<void> {
  const { ceasedAt, ceasedReason } = await lockedItem(on, passportId);
  if (ceasedAt && ceasedReason === reason) return;
  if (ceasedAt)
    throw passportError(
      'PASSPORT_CEASED',
      `passport ${passportId} has ceased already (${ceasedAt.toISOString()}: ${ceasedReason}). That is for good, and the ` +
        'reason that was given then stays',
    );
  await on
    .query(
      `update passports.items i set status = 'waste', ceased_at = now(), ceased_reason = $3
        where i.tenant_id = $1 and i.passport_id = $2`,
      [on.tenantId, passportId, reason],
    )
    .catch(rethrow);
  await appendAudit(on, [{ aggregate: ['passport', passportId], type: 'passport.ceased', data: { reason } }]);
}

async function lockedItem(
  on: TenantQueries,
  passportId: string,
): Promise<{ readonly ceasedAt: Date | null; readonly ceasedReason: string | null }> {
  const { rows } = await on.query<{ ceasedAt: Date | null; ceasedReason: string | null }>(
    `select i.ceased_at as "ceasedAt", i.ceased_reason as "ceasedReason" from passports.items i
      where i.tenant_id = $1 and i.passport_id = $2 for no key update`,
    [on.tenantId, passportId],
  );
  if (!rows[0]) throw notFound('battery', passportId);
  return rows[0];
}
