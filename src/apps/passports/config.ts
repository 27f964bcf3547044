import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';
import { compileLimits } from './compile/compile.ts';
import { documentLimits } from './compile/documents/parse.ts';

const base64 = z
  .string()
  .regex(/^[A-Za-z0-9+/]+={0,2}$/, { error: 'expected base64' })
  .nullable();

export const passportsKeys = {
  'passports.concurrency': key({
    schema: whole(1, 1000),
    env: ['TALLYMAN_PASSPORTS_CONCURRENCY'],
    doc: 'Jobs of passports that one process runs at once. Compiling takes a processor: more than there are does not help.',
    fallback: 4,
  }),
  'passports.signingKey': key({
    schema: base64,
    env: ['BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64'],
    doc: 'Ed25519 private key that signs passports, in base64: the 32 bytes of the seed, or PKCS#8 in DER. Without it, in production (`NODE_ENV`, Kubernetes, Azure Container Apps, ECS), nothing is signed, and `serve` refuses to start its part `passports` once there is a product; elsewhere a development key is derived from the master secret.',
    fallback: null,
    secret: true,
  }),
  'passports.signingKeyId': key({
    schema: z
      .string()
      .regex(/^[A-Za-z0-9._-]{1,64}$/, { error: 'expected up to 64 letters, digits, ".", "_" or "-"' })
      .nullable(),
    env: ['BPC_SIGNING_KEY_ID'],
    doc: 'Name of the signing key. It is written into every receipt; take a new one for every new key.',
    fallback: null,
  }),
  'passports.publicKeys': key({
    schema: z.string().min(1).nullable(),
    env: ['BPC_PUBLIC_KEYS'],
    doc: 'Public keys that signed earlier passports, as `id=base64` separated by commas (32 bytes each): after a rotation their signatures are still verified.',
    fallback: null,
  }),
  'passports.host': key({
    schema: z.string().regex(/^[a-z0-9.-]+(:\d+)?$/, { error: 'expected a host name, without https://' }),
    env: ['TALLYMAN_PASSPORTS_HOST'],
    doc: 'Host name in the address on the label: `https://host/01/<GTIN>/21/<serial>`. It must never change once labels are printed.',
    fallback: 'localhost',
  }),
  'passports.build': key({
    schema: z.string().min(1).max(128).nullable(),
    env: ['TALLYMAN_PASSPORTS_BUILD'],
    doc: 'Name of this build, bound into every receipt. A worker of another build refuses a compile (BUILD_MISMATCH). Default: the version of Tallyman.',
    fallback: null,
  }),
  'passports.maxDocumentBytes': key({
    schema: whole(1, 1024 * 1024 * 1024),
    env: ['TALLYMAN_PASSPORTS_MAX_DOCUMENT_BYTES'],
    doc: 'Largest document that may be uploaded.',
    fallback: documentLimits.maxBytes,
  }),
  'passports.maxPayloadBytes': key({
    schema: whole(1024),
    env: ['TALLYMAN_PASSPORTS_MAX_PAYLOAD_BYTES'],
    doc: 'Largest payload of a passport.',
    fallback: compileLimits.payloadBytes,
  }),
  'passports.maxProofBytes': key({
    schema: whole(1024),
    env: ['TALLYMAN_PASSPORTS_MAX_PROOF_BYTES'],
    doc: 'Largest proof of a passport.',
    fallback: compileLimits.proofBytes,
  }),
  'passports.maxReceiptBytes': key({
    schema: whole(1024),
    env: ['TALLYMAN_PASSPORTS_MAX_RECEIPT_BYTES'],
    doc: 'Largest receipt of a passport.',
    fallback: compileLimits.receiptBytes,
  }),
  'passports.auditCron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_PASSPORTS_AUDIT_CRON'],
    doc: 'When a signed head is put over new audit events: a cron expression, in UTC.',
    fallback: '* * * * *',
  }),
} as const;

export type PassportsConfig = ValuesOf<typeof passportsKeys>;
