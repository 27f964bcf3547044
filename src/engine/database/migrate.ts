/**
 * Brings the schemas of the components up to date, under a lock, each file in a transaction of its own.
 *
 * A component has two folders:
 *
 *   migrations/NNNN_name.sql   tables, types (also those that functions use), indexes, sequences, row-level security,
 *                              data. Applied once. Never changed after its release: released.json, beside the files,
 *                              keeps their checksums.
 *   functions/verb.sql         functions, triggers and views (`create or replace`), and at the end calls that may be
 *                              repeated. Applied again whenever the text differs from the one in the database.
 *
 * Order: a component is applied completely, migrations before functions, before the next one. So a migration may call
 * the functions of earlier components (`register_kind`), and these keep their signatures as long as it exists. It may
 * not call functions/ of its own component: what it calls there is created in a numbered file (`isolate`), and changed
 * by a later one. Bodies are not checked when functions are created, so these may refer to each other in any order.
 * Views and the calls at the end need what they name: it lies in the same file or in one before, by name.
 *
 * Older programs go on working while a newer one is rolled out:
 *
 *   - A migration only adds. One that cannot has `-- breaking` as its first line: older programs then refuse to start,
 *     instead of failing in the middle of work.
 *   - Older programs call the new text of a function. If its parameters, result or meaning change, it is a new function
 *     (another name, or other parameters), and the old one stays for one release. A numbered file drops it after that.
 *   - The release that wrote or confirmed a text is recorded. Only the same release or a newer one replaces it: an older
 *     program that starts during the roll-out leaves the newer text alone. Of two programs of one release with different
 *     texts, which happens in development, the last one wins.
 *
 * A migration may drop what functions/ created, a view for instance whose columns change. So after a migration all
 * function files of its component are applied again.
 */
import { TallymanError } from '../errors.ts';
import { version } from '../version.ts';
import { type Change, type Component, type ComponentFiles, loadComponent } from './component.ts';
import type { Database, Queryable } from './database.ts';
import { failed, privilegeError, refuseForeign } from './migration-errors.ts';
import {
  bookkeeping,
  type Client,
  confirmTexts,
  functionsKey,
  migrationKey,
  readState,
  record,
  type State,
} from './migration-state.ts';
import { compareReleases } from './release.ts';

export type { Change, Component } from './component.ts';

export interface MigrationReport {
  readonly applied: readonly Change[];
  readonly pending: readonly Change[];
  /** How many migrations the database has. */
  readonly current: number;
}

export const engineComponent: Component = {
  name: 'engine',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};

// Statements that need the table after us wait while we wait for its lock, so this must be short.
const lockTimeout = '5s';
const lockAttempts = 12;
const migrationLock = 0x7411_0001;

export interface MigrateOptions {
  readonly dryRun?: boolean;
  /** In the order in which they are applied. */
  readonly components?: readonly Component[];
  /** Of this program. Default: the version of the package. */
  readonly release?: string;
}

/** Brings the database up to date; with `dryRun` only tells what it would do. */
export async function migrate(database: Database, options: MigrateOptions = {}): Promise<MigrationReport> {
  const { dryRun = false, release = version() } = options;
  const components = await Promise.all((options.components ?? [engineComponent]).map(loadComponent));
  if (dryRun) return planned(database, components, release);
  // No limit for statements: it waits for other programs that migrate, and rewriting a table may take long.
  const client = await database.dedicated('tallyman migrate', { statementMs: 0 });
  try {
    await client.query('select pg_advisory_lock($1)', [migrationLock]);
    const { state, pending } = await comparedWith(client, components, release);
    await client.query(bookkeeping);
    for (const change of pending) await apply(client, change, release);
    for (const files of components) await confirmTexts(client, files, release);
    const added = pending.filter(({ type }) => type === 'migration').length;
    return { applied: pending, pending: [], current: state.migrations.size + added };
  } catch (error) {
    throw privilegeError(error) ?? error;
  } finally {
    await client.end();
  }
}

/** On the pool: health checks ask this often, and a connection of its own each time would use up the server's. */
async function planned(
  database: Database,
  components: readonly ComponentFiles[],
  release: string,
): Promise<MigrationReport> {
  try {
    const { state, pending } = await comparedWith(database, components, release);
    return { applied: [], pending, current: state.migrations.size };
  } catch (error) {
    throw privilegeError(error) ?? error;
  }
}

async function comparedWith(
  client: Queryable,
  components: readonly ComponentFiles[],
  release: string,
): Promise<{ readonly state: State; readonly pending: Change[] }> {
  const state = await readState(client);
  refuseForeign(components, state, release);
  return { state, pending: components.flatMap((files) => pendingOf(files, state, release)) };
}

/** Refuses to go on with a database that this program was not made for; says which way it is out of step. */
export async function requireMigrated(
  database: Database,
  components: readonly Component[] = [engineComponent],
) {
  const { pending } = await migrate(database, { dryRun: true, components });
  if (pending.length > 0)
    throw new TallymanError('NOT_MIGRATED', `${describePending(pending)} Run: tallyman migrate`);
}

/** What a database lacks, in one sentence. */
export function describePending(pending: readonly Change[]): string {
  const [first] = pending;
  return `The database lacks ${countChanges(pending)}, first "${first?.component}/${first?.name}".`;
}

/** "2 migrations and 1 function file"; what there is none of is left out. */
export function countChanges(changes: readonly Change[]): string {
  const migrations = changes.filter(({ type }) => type === 'migration').length;
  const functions = changes.length - migrations;
  const count = (n: number, noun: string): string[] => (n === 0 ? [] : [`${n} ${noun}${n === 1 ? '' : 's'}`]);
  return [...count(migrations, 'migration'), ...count(functions, 'function file')].join(' and ');
}

/** In the order in which they are applied. */
function pendingOf(files: ComponentFiles, state: State, release: string): Change[] {
  const migrations = files.migrations.filter((migration) => !state.migrations.has(migrationKey(migration)));
  const functions = files.functions.filter((file) => {
    const known = state.functions.get(functionsKey(file));
    if (known && compareReleases(release, known.release) < 0) return false;
    return migrations.length > 0 || known?.checksum !== file.checksum;
  });
  return [...migrations, ...functions];
}

async function apply(client: Client, change: Change, release: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await client.query('begin');
      await client.query(`set local lock_timeout = '${lockTimeout}'`);
      if (change.type === 'functions') await client.query('set local check_function_bodies = off');
      await client.query(change.sql);
      await record(client, change, release);
      await client.query('commit');
      return;
    } catch (error) {
      await client.query('rollback');
      if ((error as { code?: string }).code === '55P03' && attempt < lockAttempts) continue;
      throw privilegeError(error) ?? failed(change, error);
    }
  }
}
