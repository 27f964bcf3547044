import type { TenantQueries } from '../../../host/timeline.ts';
import { hexToBytes } from '../compile/hash.ts';
import type { Hash } from '../compile/types.ts';
import { isSignedBy, type KeyRing } from '../signing/keys.ts';
import { headHash, type Leaf, noHash } from './head.ts';
import type { BrokenLink, KnownHead } from './report.ts';

interface HeadRow {
  readonly number: number;
  readonly at: string;
  readonly leaves: string;
  readonly previous: Hash;
  readonly hash: Hash;
  readonly key: string;
  readonly signature: Buffer;
}

/** The first head, or event that a head covers, that is not as it was signed. One head at a time. */
export async function brokenHead(
  on: TenantQueries,
  keys: KeyRing,
  known?: KnownHead,
): Promise<BrokenLink | null> {
  let before: { readonly number: number; readonly hash: Hash } = { number: 0, hash: noHash };
  for (;;) {
    const { rows } = await on.query<HeadRow>(
      `select h.number, h.at, h.leaves, h.previous, h.hash, h.signing_key as key, h.signature
         from passports.audit_heads h where h.tenant_id = $1 and h.number > $2 order by h.number limit 1`,
      [on.tenantId, before.number],
    );
    const [head] = rows;
    if (!head) break;
    const broken =
      ownFault(on.tenantId, head, before, keys) ??
      (known?.number === head.number && known.hash !== head.hash
        ? { at: `head ${head.number}`, message: `it is not the head that was known: ${known.hash}` }
        : await coveredFault(on, head));
    if (broken) return broken;
    before = head;
  }
  if (known && known.number > before.number)
    return {
      at: `head ${known.number}`,
      message: 'it was known once and is gone, with all that came after it',
    };
  return orphan(on, before.number);
}

function ownFault(
  tenant: string,
  row: HeadRow,
  before: { readonly number: number; readonly hash: Hash },
  keys: KeyRing,
): BrokenLink | null {
  const at = `head ${row.number}`;
  if (row.number !== before.number + 1 || row.previous !== before.hash)
    return { at, message: 'it does not continue the head before it' };
  const leaves = leavesOf(row);
  if (
    !leaves ||
    headHash({ tenant, number: row.number, at: row.at, previous: row.previous, leaves }) !== row.hash
  )
    return { at, message: 'its content was changed' };
  const publicKey = keys.publicKeys[row.key];
  if (!publicKey) return { at, message: `its public key "${row.key}" is not known` };
  if (!isSignedBy(publicKey, hexToBytes(row.hash) ?? new Uint8Array(), row.signature))
    return { at, message: 'its signature does not verify' };
  return null;
}

function leavesOf({ leaves }: HeadRow): readonly Leaf[] | undefined {
  try {
    return JSON.parse(leaves) as readonly Leaf[];
  } catch {
    return undefined;
  }
}

/** The events that say that this head covers them, against those that it signed. Relies on audit_by_head. */
async function coveredFault(on: TenantQueries, head: HeadRow): Promise<BrokenLink | null> {
  const at = `head ${head.number}`;
  const { rows } = await on.query<{ name: string; hash: Hash }>(
    `select e.aggregate_type || ':' || e.aggregate_id || '#' || e.seq as name, e.hash
       from passports.audit_events e where e.tenant_id = $1 and e.head = $2`,
    [on.tenantId, head.number],
  );
  const found = new Map(rows.map(({ name, hash }) => [name, hash]));
  for (const [type, id, seq, hash] of leavesOf(head) ?? []) {
    const name = `${type}:${id}#${seq}`;
    const is = found.get(name);
    if (is === undefined)
      return { at: name, message: `it was deleted, or says of another head; ${at} covers it` };
    if (is !== hash) return { at: name, message: `it was rewritten after ${at} covered it` };
    found.delete(name);
  }
  const [added] = found.keys();
  return added === undefined ? null : { at: added, message: `it says that ${at} covers it, which does not` };
}

async function orphan(on: TenantQueries, last: number): Promise<BrokenLink | null> {
  const { rows } = await on.query<{ name: string; head: number }>(
    `select e.aggregate_type || ':' || e.aggregate_id || '#' || e.seq as name, e.head
       from passports.audit_events e where e.tenant_id = $1 and e.head is not null and (e.head > $2 or e.head < 1)
      order by e.head, e.position limit 1`,
    [on.tenantId, last],
  );
  const [row] = rows;
  return row ? { at: `head ${row.head}`, message: `it was deleted; ${row.name} names it` } : null;
}
