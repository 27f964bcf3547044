import { inflateSync } from 'node:zlib';
import { OutsideTransaction } from '../../engine/outside-transaction.ts';
import type { TenantQueries } from '../../host/timeline.ts';
import { brokenEventOf } from './audit/item-events.ts';
import type { BrokenLink } from './audit/report.ts';
import { compile } from './compile/compile.ts';
import { CompileError } from './compile/errors.ts';
import { hexToBytes, sha256Hex, utf8 } from './compile/hash.ts';
import { formatQr } from './compile/qr.ts';
import type { Compiled } from './compile/types.ts';
import { passportError } from './errors.ts';
import { compileInput, type VersionInput, versionInputs } from './jobs/compile-inputs.ts';
import { withCodes } from './jobs/run.ts';
import type { Means } from './means.ts';
import { qrPng } from './qr/png.ts';
import { isSignedBy } from './signing/keys.ts';
import { SnapshotCache } from './snapshot-cache.ts';
import { requireRulePackage } from './store/rules.ts';

export interface Replayed {
  readonly versionId: string;
  readonly payloadHash: string;
  readonly proofHash: string;
  readonly receiptHash: string;
  /** The build that compiled it, and the one that has just compiled it again. */
  readonly build: { readonly compiled: string; readonly replayed: string };
}

/**
 * Compiles a version again from what is stored (BPC-15) and compares the three hashes, the stored artefacts, the signature
 * and the document code. Checks the signed events of its battery, too: signatures, chain and order, none missing. Throws
 * REPLAY_MISMATCH with the names of what differs. Documents, facts, rules, product and item
 * are read anew; what another build compiled is compiled all the same: equal hashes prove that it compiles alike.
 *
 * `snapshots` and `events` may be shared by the versions of one call that replays many.
 */
export async function replayVersion(
  on: TenantQueries,
  id: string,
  means: Means,
  snapshots: SnapshotCache = new SnapshotCache(),
  events: CheckedEvents = new Map(),
): Promise<Replayed> {
  const [version] = await versionInputs(on, [id]);
  const stored = await storedOf(on, id);
  if (!version || !stored || version.receiptHash === null)
    throw passportError('VALIDATION_ERROR', `version ${id} is not compiled yet: there is nothing to compare`);
  const compiled = await recompiled(on, version, means, snapshots);
  const text = (part: 'payload' | 'proof' | 'receipt') => Buffer.from(compiled.bytes[part]).toString('utf8');
  const code = formatQr({ ...compiled, passportVersion: id });
  const differences = [
    compiled.payloadHash !== version.payloadHash && 'payload hash',
    compiled.proofHash !== version.proofHash && 'proof hash',
    compiled.receiptHash !== version.receiptHash && 'receipt hash',
    text('payload') !== stored.payload && 'stored payload',
    text('proof') !== stored.proof && 'stored proof',
    text('receipt') !== stored.receipt && 'stored receipt',
    signatureFault(version, means),
    stored.qrText !== null && stored.qrText !== code && 'text of the document code',
    stored.qrPng !== null && !isSameImage(stored.qrPng, qrPng(code)) && 'image of the document code',
  ].filter((difference) => typeof difference === 'string');
  if (differences.length > 0) throw mismatch(version, means, differences);
  const broken = await brokenEvent(on, version, means, events);
  if (broken)
    throw passportError('REPLAY_MISMATCH', `version ${id}: ${broken.at}: ${broken.message}`, {
      differences: [broken.at],
    });
  const { payloadHash, proofHash, receiptHash } = compiled;
  const build = { compiled: version.build, replayed: means.build };
  return { versionId: id, payloadHash, proofHash, receiptHash, build };
}

/**
 * For a route, before `replayVersion`: checks the rules outside of its transaction if this process does not know them yet. That their
 * text is another one is for `replayVersion` to say.
 */
export async function requireCheckedRules(on: TenantQueries, id: string, { rules }: Means): Promise<void> {
  const [version] = await versionInputs(on, [id]);
  if (!version || rules.has(version.rulesHash)) return;
  const { content } = await requireRulePackage(on, version.rulesId);
  if (sha256Hex(utf8(content)) !== version.rulesHash) return;
  throw new OutsideTransaction(() => withCodes(() => rules.get(version.rulesHash, () => content)));
}

/** By passport: several versions of one battery have the same events. */
export type CheckedEvents = Map<string, BrokenLink | null>;

async function brokenEvent(
  on: TenantQueries,
  { item, passportId }: VersionInput,
  { keys }: Means,
  checked: CheckedEvents,
): Promise<BrokenLink | null> {
  if (item === null) return null;
  const known = checked.get(passportId);
  if (known !== undefined) return known;
  const broken = await brokenEventOf(on, passportId, keys);
  checked.set(passportId, broken);
  return broken;
}

interface Stored {
  readonly payload: string;
  readonly proof: string;
  readonly receipt: string;
  readonly qrText: string | null;
  readonly qrPng: Buffer | null;
}

/** As texts: what was changed may be no JSON any more. */
async function storedOf(on: TenantQueries, id: string): Promise<Stored | undefined> {
  const { rows } = await on.query<Stored>(
    `select a.payload, a.proof, a.receipt, v.qr_text as "qrText", v.qr_png as "qrPng"
       from passports.artefacts a join passports.versions v on v.id = a.version_id
      where a.tenant_id = $1 and a.version_id = $2`,
    [on.tenantId, id],
  );
  return rows[0];
}

async function recompiled(
  on: TenantQueries,
  version: VersionInput,
  means: Means,
  snapshots: SnapshotCache,
): Promise<Compiled> {
  const { content } = await requireRulePackage(on, version.rulesId);
  if (sha256Hex(utf8(content)) !== version.rulesHash) throw mismatch(version, means, ['rule package']);
  try {
    const rules = await means.rules.get(version.rulesHash, () => content);
    return compile(compileInput(version, await snapshots.get(on, version.snapshotId)), rules, means.limits);
  } catch (error) {
    if (!(error instanceof CompileError || error instanceof SyntaxError)) throw error;
    throw mismatch(version, means, [`input (${error.message})`]);
  }
}

function signatureFault(
  { signature, signingKey, receiptHash }: VersionInput,
  { keys }: Means,
): string | false {
  if (signature === null) return false;
  const publicKey = keys.publicKeys[signingKey];
  if (!publicKey) return `signature (public key "${signingKey}" is not known)`;
  const message = hexToBytes(receiptHash ?? '') ?? new Uint8Array();
  return !isSignedBy(publicKey, message, signature) && 'signature';
}

const mismatch = ({ id, build }: VersionInput, means: Means, differences: readonly string[]) =>
  passportError(
    'REPLAY_MISMATCH',
    `version ${id}: replay gives another ${differences.join(', ')}` +
      (build === means.build
        ? ''
        : `. Build "${build}" compiled it, and this is "${means.build}": replay it with that build before you blame the data`),
    { differences, build: { compiled: build, replayed: means.build } },
  );

const headerBytes = 33;

/** The same size and pixels: another zlib may pack them otherwise. */
function isSameImage(stored: Uint8Array, made: Uint8Array): boolean {
  const [a, b] = [Buffer.from(stored), Buffer.from(made)];
  if (a.equals(b)) return true;
  if (!a.subarray(0, headerBytes).equals(b.subarray(0, headerBytes))) return false;
  try {
    return pixels(a).equals(pixels(b));
  } catch {
    return false;
  }
}

/** Our images have one IDAT chunk, right after the header. */
const pixels = (png: Buffer): Buffer =>
  inflateSync(png.subarray(headerBytes + 8, headerBytes + 8 + png.readUInt32BE(headerBytes)));
