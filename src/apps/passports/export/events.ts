import { z } from 'zod';
import { sha256, sha256Hex } from '../compile/index.ts';
import { verifySignature } from '../compile/signature.ts';
import type { Envelope, EnvelopeReport } from './envelope.ts';

/*
 * Individual data in an exported passport: each event is signed, names the passport, and names the event before it. What is
 * exported may begin later than the first event, so that the chain is checked between events that follow each other.
 */

const signedContent = z.object({
  passport_id: z.string(),
  seq: z.int(),
  previous: z.string().nullable(),
});

export function checkEvents(
  { events, version }: Envelope,
  publicKeys: Readonly<Record<string, Uint8Array>>,
): Pick<EnvelopeReport, 'checked' | 'mismatches'> {
  if (events.length === 0) return { checked: [], mismatches: [] };
  const passportId = /"passport_id":"([^"]*)"/.exec(version.receipt)?.[1];
  let before: { readonly seq: number; readonly hash: string } | undefined;
  const mismatches = events.flatMap(({ content, signing_key: keyId, signature }, at) => {
    const bytes = new TextEncoder().encode(content);
    const parsed = signedContent.safeParse(jsonIn(content)).data;
    const earlier = before;
    before = parsed && { seq: parsed.seq, hash: sha256Hex(bytes) };
    const message = problemOf();
    return message === undefined
      ? []
      : [{ part: 'events', at: `/events/${at}`, message: `events /events/${at}: ${message}` }];

    function problemOf(): string | undefined {
      if (!parsed) return 'is no event of a battery';
      if (parsed.passport_id !== passportId) return 'belongs to another passport';
      if (earlier && parsed.seq <= earlier.seq) return `event ${parsed.seq} is out of order`;
      if (earlier && parsed.seq === earlier.seq + 1 && parsed.previous !== earlier.hash)
        return `event ${parsed.seq} does not follow the event before it`;
      const key = Object.hasOwn(publicKeys, keyId) ? publicKeys[keyId] : undefined;
      if (!key) return `there is no public key "${keyId}"`;
      const isSigned = verifySignature(sha256(bytes), Buffer.from(signature, 'base64url'), key);
      return isSigned ? undefined : `the signature of event ${parsed.seq} does not fit`;
    }
  });
  return {
    checked: mismatches.length === 0 ? [`events: ${events.length} signed, in their order`] : [],
    mismatches,
  };
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
