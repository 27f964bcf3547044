import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { hexToBytes } from '../compile/hash.ts';
import type { Hash } from '../compile/types.ts';
import { isSignedBy, type KeyRing } from '../signing/keys.ts';
import type { KnownHead } from './report.ts';

/*
 * A head that is kept where the owner of the database cannot reach it. The trail in the database can be cut back together
 * with its heads, and everything that is left fits; only a head that is known from before shows that something is missing.
 */

const shape = z.strictObject({
  format: z.literal('tallyman-audit-head-1'),
  tenant: z.string().min(1),
  number: z.int().min(1),
  at: z.string(),
  hash: z.string().regex(/^[0-9a-f]{64}$/, { error: 'expected a SHA-256 as 64 hex digits' }),
  signing_key: z.string().min(1),
  signature: z.base64url(),
});

/** A head with its signature: what `headText` writes and `readHead` reads. */
export interface SavedHead extends KnownHead {
  readonly tenant: string;
  readonly at: string;
  readonly signingKey: string;
  readonly signature: Uint8Array;
}

/** The head that was signed last. */
export async function lastHead(on: TenantQueries): Promise<SavedHead | null> {
  const { rows } = await on.query<{
    number: number;
    at: string;
    hash: Hash;
    signingKey: string;
    signature: Buffer;
  }>(
    `select h.number, h.at, h.hash, h.signing_key as "signingKey", h.signature
       from passports.audit_heads h where h.tenant_id = $1 order by h.number desc limit 1`,
    [on.tenantId],
  );
  return rows[0] ? { tenant: on.tenantId, ...rows[0] } : null;
}

export const headText = ({ tenant, number, at, hash, signingKey, signature }: SavedHead): string =>
  `${JSON.stringify(
    {
      format: 'tallyman-audit-head-1',
      tenant,
      number,
      at,
      hash,
      signing_key: signingKey,
      signature: Buffer.from(signature).toString('base64url'),
    },
    null,
    2,
  )}\n`;

/** Throws BAD_OPTION for a text that is no head of this tenant, or that none of the known keys has signed. */
export function readHead(text: string, tenant: string, keys: Pick<KeyRing, 'publicKeys'>): KnownHead {
  const { data, error } = shape.safeParse(jsonIn(text));
  if (!data) {
    const [issue] = error.issues;
    throw bad(`it is no saved head: /${issue?.path.join('/')}: ${issue?.message}`);
  }
  if (data.tenant !== tenant) throw bad(`it is a head of the tenant "${data.tenant}", not of "${tenant}"`);
  const publicKey = Object.hasOwn(keys.publicKeys, data.signing_key)
    ? keys.publicKeys[data.signing_key]
    : undefined;
  if (!publicKey)
    throw bad(`its public key "${data.signing_key}" is not known: add it to passports.publicKeys`);
  const signed = hexToBytes(data.hash) ?? new Uint8Array();
  if (!isSignedBy(publicKey, signed, Buffer.from(data.signature, 'base64url')))
    throw bad('its signature does not verify: the file was changed');
  return { number: data.number, hash: data.hash };
}

const bad = (message: string): TallymanError => new TallymanError('BAD_OPTION', message);

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
