import { messageOf, TallymanError } from '../errors.ts';
import type { Change, ComponentFiles, Migration } from './component.ts';
import { type AppliedMigration, migrationKey, type State } from './migration-state.ts';

/** Throws where a database was not made for this program, or by files that have changed since. */
export function refuseForeign(components: readonly ComponentFiles[], state: State, release: string): void {
  const ours = new Map(
    components
      .flatMap(({ migrations }) => migrations)
      .map((migration) => [migrationKey(migration), migration]),
  );
  const names = new Set(components.map(({ name }) => name));
  for (const row of state.migrations.values()) {
    if (!names.has(row.component)) continue;
    const migration = ours.get(migrationKey(row));
    if (!migration && row.breaking) throw tooNew(row, release);
    if (migration && migration.checksum !== row.checksum) throw changed(row, migration);
  }
}

const detailsOf = ({ component, name, release }: AppliedMigration) => ({ component, name, release });

function tooNew(row: AppliedMigration, release: string): TallymanError {
  const [by, newer] = row.release
    ? [`Tallyman ${row.release}`, row.release]
    : ['a newer Tallyman', 'that version'];
  return new TallymanError(
    'DATABASE_TOO_NEW',
    `The database was changed by ${by} in a way that older programs cannot work with (breaking migration ` +
      `"${row.component}/${row.name}"), and this is Tallyman ${release}, which does not have that migration. ` +
      `Update this program to ${newer} or later. To go back instead, restore a backup from before that migration.`,
    { details: detailsOf(row) },
  );
}

function changed(row: AppliedMigration, migration: Migration): TallymanError {
  const by = row.release ? `, by Tallyman ${row.release},` : '';
  const name = `"${row.component}/${row.name}"`;
  const what =
    row.name === migration.name
      ? `Migration ${name} was applied to this database${by} with other contents than this program has.`
      : `Migration ${row.version} of "${row.component}" was applied to this database${by} as ${name}, and this program has "${migration.name}" in its place.`;
  return new TallymanError(
    'MIGRATION_CHANGED',
    `${what} A released migration never changes, so the database or this program is from between two releases. ` +
      'If you changed the file, undo that and put the change into a new numbered file; otherwise run the version ' +
      'that made this database. A database whose data you do not need can be dropped, created again and migrated.',
    { details: detailsOf(row) },
  );
}

/** What `create or replace` refuses: another result, other names or fewer defaults of parameters; other columns of a view. */
const cannotReplace: ReadonlySet<string | undefined> = new Set(['42P13', '42P16']);

export function failed(change: Change, error: unknown): TallymanError {
  const advice =
    change.type === 'functions' && cannotReplace.has((error as { code?: string }).code)
      ? ' PostgreSQL cannot replace what is there: give the new function another name or other parameters, so that ' +
        'older programs find the old one, or drop it in a numbered migration.'
      : '';
  const what = change.type === 'functions' ? 'Function file' : 'Migration';
  return new TallymanError(
    'MIGRATION_FAILED',
    `${what} "${change.component}/${change.name}" failed, and nothing of it was applied: ${messageOf(error)}.${advice}`,
    { cause: error, details: { component: change.component, name: change.name } },
  );
}

export function privilegeError(error: unknown): TallymanError | undefined {
  if ((error as { code?: string }).code !== '42501') return undefined;
  return new TallymanError(
    'MISSING_PRIVILEGES',
    `The database user may not do this: ${messageOf(error)}. It must own schema "tallyman", or be allowed to create it (grant create on database … to …).`,
    { cause: error },
  );
}
