/**
 * One-way mode, the receiving side: takes bundles from the folder that a data diode fills. Offsets are dense, so that a bundle that
 * was lost shows at once: what comes behind it waits, and the missing offsets are named until they are sent again.
 */
import { mkdir, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../engine/errors.ts';
import { BadBundle, type BundleHeader } from '../bundles/format.ts';
import { type ImportOptions, importBundle } from '../bundles/import.ts';
import { peekBundle } from '../bundles/walk.ts';
import { type BoundaryCode, BoundaryError } from '../domain/errors.ts';
import { isAbsent } from '../objects/files.ts';

export interface InboxOptions extends ImportOptions {
  readonly folder: string;
}

export interface Missing {
  readonly from: string;
  readonly to: string;
  readonly fromOffset: number;
  readonly toOffset: number;
}

export interface InboxReport {
  readonly imported: readonly { readonly file: string; readonly taken: number }[];
  /** They lie behind offsets that are missing, and stay in the folder. */
  readonly waiting: readonly string[];
  /** Ask the sending zone to send these again. */
  readonly missing: readonly Missing[];
  /** They end too early, as files do that are still being written, and stay in the folder. */
  readonly incomplete: readonly string[];
  /** They are sound as far as is known, and cannot be taken as things are: they stay in the folder. */
  readonly held: readonly { readonly file: string; readonly error: BoundaryError }[];
  /** Why the look has ended early, for a cause that no file has: storage, database or disk of this node. */
  readonly failed: unknown;
  /** Moved to `refused/`, each with a text that says why. */
  readonly refused: readonly { readonly file: string; readonly why: string }[];
}

const done = 'done';
const refusedFolder = 'refused';

/**
 * Takes what there is, in the order of the offsets. Files that were taken are moved to `done/`. Only a file that is wrong in itself is
 * put aside: the sender counts its facts as sent, so that any other stays until it can be taken.
 */
export async function importInbox(options: InboxOptions): Promise<InboxReport> {
  const { folder } = options;
  const imported: { file: string; taken: number }[] = [];
  const waiting: string[] = [];
  const incomplete: string[] = [];
  const held: { file: string; error: BoundaryError }[] = [];
  const refused: { file: string; why: string }[] = [];
  let failed: unknown;
  const missing = new Map<string, Missing>();
  await Promise.all([done, refusedFolder].map((name) => mkdir(join(folder, name), { recursive: true })));
  const leave = async (file: string, error: BoundaryError): Promise<void> => {
    if (error instanceof BadBundle && error.isCutOff) {
      incomplete.push(file);
      return;
    }
    if (!(error instanceof BadBundle) && error.reason !== 'wrong_stream') {
      held.push({ file, error });
      return;
    }
    const why = messageOf(error);
    await writeFile(join(folder, refusedFolder, `${file}.txt`), `${why}\n`);
    await move(folder, file, refusedFolder);
    refused.push({ file, why });
  };
  for (const { file, header } of await sorted(folder, leave)) {
    try {
      const { taken } = await importBundle(options, join(folder, file));
      await move(folder, file, done);
      imported.push({ file, taken });
    } catch (error) {
      if (!isOfFile(error)) {
        failed = error;
        break;
      }
      if (error.reason !== 'offset_gap') {
        await leave(file, error);
        continue;
      }
      waiting.push(file);
      const { from, to } = header;
      const id = `${from} ${to}`;
      const fromOffset = Number(error.details?.missing_from);
      // The first one that waits: what lies behind it is not known to be missing.
      if (!missing.has(id)) missing.set(id, { from, to, fromOffset, toOffset: header.firstOffset - 1 });
    }
  }
  return { imported, waiting, missing: [...missing.values()], incomplete, held, failed, refused };
}

const passing: ReadonlySet<string> = new Set<BoundaryCode>(['UNAVAILABLE', 'ABORTED', 'RESOURCE_EXHAUSTED']);

/** Otherwise the next file would fail in the same way. */
const isOfFile = (error: unknown): error is BoundaryError =>
  error instanceof BoundaryError && !passing.has(error.code);

interface Waiting {
  readonly file: string;
  readonly header: BundleHeader;
}

async function sorted(
  folder: string,
  leave: (file: string, error: BoundaryError) => Promise<void>,
): Promise<Waiting[]> {
  const found: Waiting[] = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.tar')) continue;
    try {
      found.push({ file: entry.name, header: await peekBundle(join(folder, entry.name)) });
    } catch (error) {
      if (error instanceof BoundaryError) await leave(entry.name, error);
      else if (!isAbsent(error)) throw error;
    }
  }
  return found.sort(
    (a, b) =>
      compare(a.header.from, b.header.from) ||
      a.header.firstOffset - b.header.firstOffset ||
      a.header.createdAt - b.header.createdAt,
  );
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const move = (folder: string, file: string, to: string): Promise<void> =>
  rename(join(folder, file), join(folder, to, file));
