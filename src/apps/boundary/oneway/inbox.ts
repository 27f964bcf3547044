/**
 * One-way mode, the receiving side: takes bundles from the folder that a data diode fills. Offsets are dense, so that a bundle that
 * was lost shows at once: what comes behind it waits, and the missing offsets are named until they are sent again.
 */
import { mkdir, readdir, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../engine/errors.ts';
import { BadBundle, type BundleHeader } from '../bundles/format.ts';
import { type ImportOptions, importBundle } from '../bundles/import.ts';
import { peekBundle } from '../bundles/walk.ts';
import type { Frontier } from '../domain/delivery.ts';
import { type BoundaryCode, BoundaryError } from '../domain/errors.ts';
import { isAbsent } from '../objects/files.ts';
import type { StreamId } from '../store/store.ts';

export interface InboxOptions extends Omit<ImportOptions, 'signal'> {
  readonly folder: string;
  /** A file that ends too early is reported once it has not changed for this long. Default 60,000. */
  readonly quietMs?: number;
  /** Milliseconds of a clock that only grows. */
  readonly clock?: () => number;
}

export interface Missing {
  readonly from: string;
  readonly to: string;
  readonly fromOffset: number;
  readonly toOffset: number;
}

export interface InboxReport {
  readonly imported: readonly { readonly file: string; readonly taken: number }[];
  /** They lie behind offsets that are missing, or behind a file that is held, and stay in the folder. */
  readonly waiting: readonly string[];
  /** Ask the sending zone to send these again. */
  readonly missing: readonly Missing[];
  /** They end too early, as files do that are still being written, and stay in the folder. */
  readonly incomplete: readonly string[];
  /** Those of them that have not changed for so long that they may be no longer on their way. */
  readonly cutOff: readonly string[];
  /** They are sound as far as is known, and cannot be taken as things are: they stay in the folder. */
  readonly held: readonly { readonly file: string; readonly error: BoundaryError }[];
  /** Why the look has ended early, for a cause that no file has: storage, database or disk of this node. */
  readonly failed: unknown;
  /** Moved to `refused/`, each with a text that says why. */
  readonly refused: readonly { readonly file: string; readonly why: string }[];
}

/** What is known of a file, as long as its size and time stay the same. */
interface Seen {
  readonly size: number;
  readonly mtimeMs: number;
  /** By our clock, since when it is as it is. */
  readonly since: number;
  /** Not verified. Undefined: the file ends before it. */
  readonly header: BundleHeader | undefined;
  isCutOff: boolean;
  held?: { readonly error: BoundaryError; readonly holds: (frontier: Frontier | undefined) => boolean };
}

interface Found {
  readonly file: string;
  readonly seen: Seen;
  readonly header: BundleHeader;
}

/** One look into the folder. */
interface Look {
  readonly signal: AbortSignal | undefined;
  /** By the zone that facts come from. */
  readonly frontiers: Map<string, Frontier | undefined>;
  /** Zones and epochs of files that are held because their epoch is not the one that is known here. */
  readonly otherEpochs: Set<string>;
  readonly imported: { file: string; taken: number }[];
  readonly waiting: string[];
  readonly missing: Map<string, Missing>;
  readonly incomplete: string[];
  readonly cutOff: string[];
  readonly held: { file: string; error: BoundaryError }[];
  readonly refused: { file: string; why: string }[];
}

const done = 'done';
const refusedFolder = 'refused';

/**
 * Takes what there is, in the order of the offsets. Files that were taken are moved to `done/`. Only a file that is wrong in itself is
 * put aside: the sender counts its facts as sent, so that any other stays until it can be taken.
 *
 * A look reads no more than it must, since a folder may hold much that waits: of a file behind a gap only the header, and nothing of
 * a file that was read before and whose outcome would be the same.
 */
export class Inbox {
  readonly #options: InboxOptions;
  readonly #quietMs: number;
  readonly #clock: () => number;
  #seen: ReadonlyMap<string, Seen> = new Map();

  constructor(options: InboxOptions) {
    this.#options = options;
    this.#quietMs = options.quietMs ?? 60_000;
    this.#clock = options.clock ?? (() => performance.now());
  }

  /** The signal ends it between two files, or two chunks of one. */
  async look(signal?: AbortSignal): Promise<InboxReport> {
    const { folder } = this.#options;
    await Promise.all([done, refusedFolder].map((name) => mkdir(join(folder, name), { recursive: true })));
    const look: Look = {
      ...{ signal, frontiers: new Map(), otherEpochs: new Set(), missing: new Map() },
      ...{ imported: [], waiting: [], incomplete: [], cutOff: [], held: [], refused: [] },
    };
    let failed: unknown;
    try {
      for (const found of await this.#files(look)) {
        if (signal?.aborted) break;
        await this.#take(look, found);
      }
    } catch (error) {
      if (!signal?.aborted) failed = error;
    }
    const { imported, waiting, incomplete, cutOff, held, refused } = look;
    const missing = [...look.missing.values()];
    return { imported, waiting, missing, incomplete, cutOff, held, failed, refused };
  }

  /** Those whose header can be read, in the order of the offsets. */
  async #files(look: Look): Promise<Found[]> {
    const all = new Map<string, Seen>();
    const found: Found[] = [];
    for (const entry of await readdir(this.#options.folder, { withFileTypes: true })) {
      const file = entry.name;
      if (!entry.isFile() || !file.endsWith('.tar')) continue;
      if (look.signal?.aborted) return [];
      const seen = await this.#see(look, file);
      if (!seen) continue;
      all.set(file, seen);
      if (seen.header) found.push({ file, seen, header: seen.header });
      else this.#leaveIncomplete(look, file, seen);
    }
    this.#seen = all;
    return found.sort(
      (a, b) =>
        compare(a.header.from, b.header.from) ||
        a.header.firstOffset - b.header.firstOffset ||
        a.header.createdAt - b.header.createdAt,
    );
  }

  /** Undefined: it is gone, or was put aside. */
  async #see(look: Look, file: string): Promise<Seen | undefined> {
    const path = join(this.#options.folder, file);
    try {
      const { size, mtimeMs } = await stat(path);
      const known = this.#seen.get(file);
      if (known?.size === size && known.mtimeMs === mtimeMs) return known;
      const header = await peekBundle(path).catch((error: unknown) => {
        if (isCutOff(error)) return undefined;
        throw error;
      });
      return { size, mtimeMs, since: this.#clock(), header, isCutOff: false };
    } catch (error) {
      if (error instanceof BadBundle) await this.#refuse(look, file, error);
      else if (!isAbsent(error)) throw error;
      return undefined;
    }
  }

  /** Throws what is not a matter of this file. */
  async #take(look: Look, { file, seen, header }: Found): Promise<void> {
    if (seen.isCutOff) return this.#leaveIncomplete(look, file, seen);
    const { folder, store } = this.#options;
    const { from } = header;
    const stream = this.#streamOf(header);
    if (stream && !look.frontiers.has(from)) look.frontiers.set(from, await store.frontier(stream));
    const frontier = look.frontiers.get(from);
    if (seen.held?.holds(frontier)) return hold(look, file, header, seen.held.error);
    if (stream && this.#waits(look, file, header, frontier)) return;
    try {
      const { signal } = look;
      const imported = await importBundle(
        { ...this.#options, ...(signal && { signal }) },
        join(folder, file),
      );
      look.frontiers.set(from, imported.frontier);
      await move(folder, file, done);
      look.imported.push({ file, taken: imported.taken });
    } catch (error) {
      if (!isOfFile(error)) throw error;
      // A part of it may have been taken.
      look.frontiers.delete(from);
      if (isCutOff(error)) {
        seen.isCutOff = true;
        this.#leaveIncomplete(look, file, seen);
      } else if (error instanceof BadBundle || error.reason === 'wrong_stream')
        await this.#refuse(look, file, error);
      else if (error.reason === 'offset_gap') wait(look, file, header, Number(error.details?.missing_from));
      else {
        seen.held = { error, holds: holdsWhile(error, frontier) };
        hold(look, file, header, error);
      }
    }
  }

  /** Undefined: it is not for this node, which importing it tells at once. */
  #streamOf({ kind, tenantId, from, to }: BundleHeader): StreamId | undefined {
    const { zone, tenantId: own } = this.#options;
    return kind === 'facts' && to === zone && tenantId === own
      ? { tenantId, buffer: 'forward', from, to }
      : undefined;
  }

  /** By the header alone. It is not verified, and nothing is taken by it: that the file waits is all that follows. */
  #waits(look: Look, file: string, header: BundleHeader, frontier: Frontier | undefined): boolean {
    const { from, epoch, firstOffset } = header;
    if (frontier && frontier.epoch !== epoch) {
      if (!look.otherEpochs.has(epochOf({ from, epoch }))) return false;
      look.waiting.push(file);
      return true;
    }
    const next = (frontier?.offset ?? 0) + 1;
    if (firstOffset <= next) return false;
    wait(look, file, header, next);
    return true;
  }

  #leaveIncomplete(look: Look, file: string, { since }: Seen): void {
    look.incomplete.push(file);
    if (this.#clock() - since >= this.#quietMs) look.cutOff.push(file);
  }

  async #refuse(look: Look, file: string, error: BoundaryError): Promise<void> {
    const { folder } = this.#options;
    const why = messageOf(error);
    await writeFile(join(folder, refusedFolder, `${file}.txt`), `${why}\n`);
    await move(folder, file, refusedFolder);
    look.refused.push({ file, why });
  }
}

function wait(look: Look, file: string, { from, to, firstOffset }: BundleHeader, fromOffset: number): void {
  look.waiting.push(file);
  // The first one that waits: what lies behind it is not known to be missing.
  if (!look.missing.has(from)) look.missing.set(from, { from, to, fromOffset, toOffset: firstOffset - 1 });
}

function hold(look: Look, file: string, header: BundleHeader, error: BoundaryError): void {
  look.held.push({ file, error });
  if (error.reason === 'epoch_mismatch') look.otherEpochs.add(epochOf(header));
}

const epochOf = ({ from, epoch }: Pick<BundleHeader, 'from' | 'epoch'>): string => `${from} ${epoch}`;

/** As long as what a file is held for would be found again. What is not known of may have passed: it is tried again. */
function holdsWhile(
  { reason }: BoundaryError,
  was: Frontier | undefined,
): (frontier: Frontier | undefined) => boolean {
  switch (reason) {
    case 'unknown_key':
    case 'unknown_version':
      return () => true;
    case 'epoch_mismatch':
      return (now) => now?.epoch === was?.epoch;
    case 'chain_mismatch':
      return (now) => now?.epoch === was?.epoch && now?.offset === was?.offset && now?.chain === was?.chain;
    default:
      return () => false;
  }
}

const isCutOff = (error: unknown): boolean => error instanceof BadBundle && error.isCutOff;

const passing: ReadonlySet<string> = new Set<BoundaryCode>(['UNAVAILABLE', 'ABORTED', 'RESOURCE_EXHAUSTED']);

/** Otherwise the next file would fail in the same way. */
const isOfFile = (error: unknown): error is BoundaryError =>
  error instanceof BoundaryError && !passing.has(error.code);

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const move = (folder: string, file: string, to: string): Promise<void> =>
  rename(join(folder, file), join(folder, to, file));
