import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** A part of the product that owns a schema. migrate.ts says what belongs into which folder. */
export interface Component {
  readonly name: string;
  /** Numbered files: tables, types, indexes, sequences, row-level security, data. */
  readonly folder: URL;
  /** Functions, triggers and views. */
  readonly functions?: URL;
}

/** A numbered file: applied once, then never changed. */
export interface Migration extends SqlFile {
  readonly type: 'migration';
  readonly version: number;
  readonly breaking: boolean;
}

/** A file of functions: applied again whenever its text changes. */
export interface FunctionFile extends SqlFile {
  readonly type: 'functions';
}

/** A file that was, or is to be, applied. */
export type Change = Migration | FunctionFile;

interface SqlFile {
  readonly component: string;
  /** Below the component, without its ending: `0001_tables`, `functions/claim`. */
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
}

export interface ComponentFiles {
  readonly name: string;
  readonly migrations: readonly Migration[];
  readonly functions: readonly FunctionFile[];
}

export async function loadComponent(component: Component): Promise<ComponentFiles> {
  const { name } = component;
  const [migrations, functions] = await Promise.all([
    sqlFiles(component.folder),
    component.functions ? sqlFiles(component.functions) : [],
  ]);
  return {
    name,
    migrations: migrations.map((file) => ({
      ...file,
      type: 'migration',
      component: name,
      version: Number.parseInt(file.name, 10),
      breaking: file.sql.startsWith('-- breaking'),
    })),
    functions: functions.map((file) => ({
      ...file,
      type: 'functions',
      component: name,
      name: `functions/${file.name}`,
    })),
  };
}

/** In the order of their names. */
async function sqlFiles(folder: URL): Promise<Pick<SqlFile, 'name' | 'sql' | 'checksum'>[]> {
  const names = (await readdir(fileURLToPath(folder))).filter((file) => file.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (file) => {
      const sql = await readFile(new URL(file, folder), 'utf8');
      return { name: file.replace(/\.sql$/, ''), sql, checksum: checksumOf(sql) };
    }),
  );
}

const checksumOf = (sql: string): string => createHash('sha256').update(sql).digest('hex').slice(0, 16);
