/**
 * Kinds are internal unless they are declared public: their payloads are written by code that knows what it may put into
 * them. People and programs from outside (the HTTP API, the command line) enqueue and schedule public kinds only.
 */
import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import type { AnyKind } from './kind.ts';

export const internalKind = (name: string): TallymanError =>
  new TallymanError(
    'INTERNAL_KIND',
    `kind "${name}" is internal: it cannot be enqueued or scheduled from outside. If it should be, define it with public: true and start its worker once.`,
  );

export const unknownKind = (name: string): TallymanError =>
  new TallymanError(
    'UNKNOWN_KIND',
    `unknown kind "${name}"; start a worker that defines it once, or register it in SQL with register_kind`,
  );

/** Refuses a kind that is internal, or that nobody has registered. `known`: kinds of this process, which come first. */
export async function requirePublic(
  on: Queryable,
  known: ReadonlyMap<string, AnyKind>,
  name: string,
): Promise<void> {
  const own = known.get(name);
  if (own) {
    if (own.isPublic) return;
    throw internalKind(name);
  }
  const { rows } = await on.query<{ isPublic: boolean }>(
    'select is_public as "isPublic" from tallyman.kinds where name = $1',
    [name],
  );
  const [kind] = rows;
  if (!kind) throw unknownKind(name);
  if (!kind.isPublic) throw internalKind(name);
}

/** Those of these kinds that are public. */
export async function publicKinds(
  on: Queryable,
  known: ReadonlyMap<string, AnyKind>,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  const asked = [...new Set(names)];
  const { rows } = await on.query<{ name: string }>(
    'select name from tallyman.kinds where name = any ($1) and is_public',
    [asked],
  );
  const registered = new Set(rows.map(({ name }) => name));
  return new Set(asked.filter((name) => known.get(name)?.isPublic ?? registered.has(name)));
}
