import type { Database, Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { AuditChain, beginning, type Seal, sealsAfter } from './chain.ts';

/** A seal that was noted outside of the database. */
export interface Head {
  readonly seq: string;
  readonly hash: string;
}

export interface AuditReport {
  readonly isIntact: boolean;
  readonly problems: readonly string[];
  readonly seals: number;
  /** Events that were read again. */
  readonly events: number;
  /** Events that retention has deleted. */
  readonly pruned: number;
  /** Events that are not sealed yet: nothing is known about them. */
  readonly unsealed: number;
  /** The last seal: note it elsewhere, and a cut end of the chain is found, too. */
  readonly head: Head | undefined;
}

const sealsAtOnce = 500;
/** After so many the rest says nothing new. */
const mostProblems = 20;

/** `12:ab34…`, as `tallyman audit verify` prints it. */
export function parseHead(text: string): Head {
  const match = /^([1-9]\d{0,18}):([0-9a-f]{64})$/.exec(text.trim());
  if (!match?.[1] || !match[2])
    throw new TallymanError(
      'BAD_OPTION',
      'a head is the number of a seal, a colon and 64 hexadecimal digits, as `tallyman audit verify` prints it',
    );
  return { seq: match[1], hash: match[2] };
}

export const headText = ({ seq, hash }: Head): string => `${seq}:${hash}`;

/** Reads the whole audit again, in one snapshot, and compares it with its seals. */
export function verifyAudit(
  database: Database,
  box: SecretBox,
  options: { readonly head?: Head; readonly onProgress?: (seals: number) => void } = {},
): Promise<AuditReport> {
  return database.transaction((tx) => verifyWithin(tx, new AuditChain(box), options), {
    opening: 'set transaction isolation level repeatable read, read only',
    statementMs: 0,
    idleMs: 0,
  });
}

async function verifyWithin(
  tx: Queryable,
  chain: AuditChain,
  { head: known, onProgress }: { readonly head?: Head; readonly onProgress?: (seals: number) => void },
): Promise<AuditReport> {
  const problems: string[] = [];
  let [seals, events, pruned] = [0, 0, 0];
  let isKnownMet = known === undefined;
  let before: Pick<Seal, 'seq' | 'lastId' | 'hash'> = beginning;
  for (let next = await sealsAfter(tx, before.seq, sealsAtOnce); next.length > 0; ) {
    for (const seal of next) {
      if (problems.length >= mostProblems) break;
      problems.push(...flawsOf(chain, seal, before));
      const found = await chain.digest(tx, { after: before.lastId, lastId: seal.lastId, keyId: seal.keyId });
      if (seal.pruned) pruned += seal.events;
      else events += found.events;
      const isAsSealed = seal.pruned ? found.events === 0 : found.digest.equals(seal.digest);
      if (!isAsSealed && chain.knows(seal.keyId)) problems.push(changedEvents(seal, before, found.events));
      if (known?.seq === seal.seq) {
        isKnownMet = true;
        if (known.hash !== seal.hash.toString('hex'))
          problems.push(`seal ${seal.seq} is not the one that you noted`);
      }
      before = seal;
      seals += 1;
      onProgress?.(seals);
    }
    next = problems.length >= mostProblems ? [] : await sealsAfter(tx, before.seq, sealsAtOnce);
  }
  if (!isKnownMet && problems.length < mostProblems)
    problems.push(`seal ${known?.seq} that you noted is gone: the end of the audit was cut off`);
  const { rows } = await tx.query<{ unsealed: number }>(
    'select count(*)::integer as unsealed from tallyman_server.audit_events where id > $1::bigint',
    [before.lastId],
  );
  return {
    isIntact: problems.length === 0,
    problems,
    seals,
    events,
    pruned,
    unsealed: rows[0]?.unsealed ?? 0,
    head: seals > 0 ? { seq: before.seq, hash: before.hash.toString('hex') } : undefined,
  };
}

function flawsOf(chain: AuditChain, seal: Seal, before: Pick<Seal, 'seq' | 'lastId' | 'hash'>): string[] {
  const flaws: string[] = [];
  const expected = String(BigInt(before.seq) + 1n);
  if (seal.seq !== expected) flaws.push(`seal ${expected} is missing`);
  if (!chain.knows(seal.keyId))
    return [
      ...flaws,
      `seal ${seal.seq} was made under the master secret ${seal.keyId}, which is not configured (secrets.otherKeys)`,
    ];
  if (seal.seq === expected && !chain.hash(seal, before.hash).equals(seal.hash))
    flaws.push(`seal ${seal.seq} was changed`);
  if (seal.pruned && !chain.pruned(seal).equals(seal.pruned))
    flaws.push(`the events of seal ${seal.seq} were deleted, and not by retention`);
  return flaws;
}

const changedEvents = (seal: Seal, before: Pick<Seal, 'seq' | 'lastId'>, found: number): string => {
  const from = before.seq === beginning.seq ? '' : `${BigInt(before.lastId) + 1n} `;
  const range = `events ${from}to ${seal.lastId}, sealed ${seal.sealedAt.toISOString()}`;
  const sealed = seal.pruned ? 0 : seal.events;
  if (found < sealed) return `${range}: ${sealed - found} of ${sealed} are missing`;
  if (found > sealed) return `${range}: ${found - sealed} were added later`;
  return `${range}: at least one was changed`;
};
