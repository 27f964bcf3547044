import { z } from 'zod';
import { readReceipt } from '../compile/artefacts.ts';
import { canonical, type Json, type Mismatch, sha256Hex, verify } from '../compile/index.ts';
import type { Disclosed, DisclosedVersion, IndividualRecord } from '../page/disclosure.ts';
import { checkEvents } from './events.ts';

/*
 * What a reader takes home to check offline (BPC-15): the artefacts as the very texts that were hashed, redacted for this
 * reader, with signatures and public keys. Keys inside show only that the file fits itself; to know who signed, the
 * reader gives keys that came by another way.
 */

const base64 = z.base64url();
const version = z.strictObject({
  receipt: z.string(),
  payload: z.string(),
  proof: z.string(),
  signature: base64,
});
const event = z.strictObject({ content: z.string(), signing_key: z.string(), signature: base64 });
export type EnvelopeEvent = z.infer<typeof event>;
const envelope = z.strictObject({
  format: z.literal('tallyman-passport-1'),
  // When it was exported. No signature covers it: whether it still holds, only the issuer's server can say.
  state: z.enum(['SIGNED', 'ACTIVE', 'SUPERSEDED', 'REVOKED']),
  ended_at: z.string().nullable(),
  version,
  model: version.nullable(),
  // Oldest first. Empty for readers who may not see them.
  events: z.array(event),
  keys: z.record(z.string(), base64),
});
export type Envelope = z.infer<typeof envelope>;

export function envelopeOf(disclosed: Disclosed): Envelope {
  const { version: own, model, publicKeys, state, endedAt, individual } = disclosed;
  return {
    format: 'tallyman-passport-1',
    state,
    ended_at: endedAt,
    version: textsOf(own),
    model: model === null ? null : textsOf(model),
    events: [...(individual ?? [])].sort((a, b) => a.seq - b.seq).map(eventOf),
    keys: Object.fromEntries(
      Object.entries(publicKeys).map(([id, key]) => [id, Buffer.from(key).toString('base64url')]),
    ),
  };
}

const textsOf = ({ receipt, payload, proof, signature }: DisclosedVersion): z.infer<typeof version> => ({
  receipt: canonical(receipt as unknown as Json),
  payload: canonical(payload as unknown as Json),
  proof: canonical(proof as unknown as Json),
  signature: Buffer.from(signature).toString('base64url'),
});

const eventOf = ({ content, signingKey, signature }: IndividualRecord): EnvelopeEvent => ({
  content,
  signing_key: signingKey,
  signature: Buffer.from(signature).toString('base64url'),
});

/** `part` names what does not fit: a part of the passport, `file`, `model`, `state` or `events`. */
export interface ReportedMismatch extends Omit<Mismatch, 'part'> {
  readonly part: string;
}

export interface EnvelopeReport {
  readonly ok: boolean;
  /** `file`: the signature was checked with keys that came with the file, which proves nothing about who signed. */
  readonly keysFrom: 'file' | 'reader';
  /** When it was exported; null if the file cannot be read. */
  readonly state: Envelope['state'] | null;
  readonly checked: readonly string[];
  readonly mismatches: readonly ReportedMismatch[];
}

export interface EnvelopeOptions {
  readonly keys?: Readonly<Record<string, Uint8Array>>;
  readonly qr?: string;
  /** Rule packages by their hash, if the reader has them: fields are computed again. */
  readonly rulesByHash?: ReadonlyMap<string, string>;
}

type Checks = Pick<EnvelopeReport, 'checked' | 'mismatches'>;

/** Never throws for bad input: says what is wrong with it. */
export function verifyEnvelope(text: string, given: EnvelopeOptions = {}): EnvelopeReport {
  const keysFrom = given.keys ? 'reader' : 'file';
  const parsed = readEnvelope(text);
  if (typeof parsed === 'string')
    return {
      ok: false,
      keysFrom,
      state: null,
      checked: [],
      mismatches: [{ part: 'file', at: '', message: parsed }],
    };
  const publicKeys = given.keys ?? keysIn(parsed);
  const check = (name: string, { signature, ...texts }: z.infer<typeof version>, qr?: string): Checks => {
    const rules = given.rulesByHash?.get(rulesHashIn(texts.receipt) ?? '');
    const result = verify({
      ...texts,
      signature: Uint8Array.from(Buffer.from(signature, 'base64url')),
      publicKeys,
      ...(qr === undefined ? {} : { qr }),
      ...(rules === undefined ? {} : { rules }),
    });
    return {
      checked: result.checked.map((each) => `${name}: ${each}`),
      mismatches: result.mismatches.map((each) => ({ ...each, message: `${name}: ${each.message}` })),
    };
  };
  const results: Checks[] = [check('version', parsed.version, given.qr)];
  if (parsed.model) results.push(check('model', parsed.model));
  results.push(checkLink(parsed), checkEvents(parsed, publicKeys), checkState(parsed));
  const mismatches = results.flatMap((each) => each.mismatches);
  return {
    ok: mismatches.length === 0,
    keysFrom,
    state: parsed.state,
    checked: results.flatMap((each) => each.checked),
    mismatches,
  };
}

/** The envelope, or what is wrong with the text. */
export function readEnvelope(text: string): Envelope | string {
  try {
    const { data, error } = envelope.safeParse(JSON.parse(text));
    if (data) return data;
    return `is no exported passport: /${error.issues[0]?.path.join('/')}: ${error.issues[0]?.message}`;
  } catch {
    return 'is no JSON; export the passport as JSON and give this file';
  }
}

export const keysIn = ({ keys }: Envelope): Readonly<Record<string, Uint8Array>> =>
  Object.fromEntries(
    Object.entries(keys).map(([id, key]) => [id, Uint8Array.from(Buffer.from(key, 'base64url'))]),
  );

function rulesHashIn(text: string): string | undefined {
  const receipt = readReceipt(text);
  return receipt.ok ? receipt.value.inputs.rules.hash : undefined;
}

/** The item's receipt names the model's: without it a file could carry another model's data. */
function checkLink({ version: own, model }: Envelope): Checks {
  const named = /"model":(?:null|\{"receipt_hash":"([0-9a-f]{64})")/.exec(own.receipt)?.[1];
  const actual = model === null ? undefined : sha256Hex(new TextEncoder().encode(model.receipt));
  if (named === actual)
    return { checked: model ? ['version: names the receipt of the model'] : [], mismatches: [] };
  const message = model
    ? 'the model in this file is not the one that the version was made for'
    : 'the version was made for a model, and the file does not have it';
  return { checked: [], mismatches: [{ part: 'model', at: '', message }] };
}

/** What the issuer has revoked is genuine and must not be relied on. */
function checkState({ state, ended_at: since }: Envelope): Checks {
  if (state !== 'REVOKED') return { checked: [], mismatches: [] };
  const message = `state: the issuer has revoked this version${since === null ? '' : ` (${since})`}`;
  return { checked: [], mismatches: [{ part: 'state', at: '', message }] };
}
