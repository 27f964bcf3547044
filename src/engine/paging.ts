import { requireId } from './validate.ts';

/** What a caller asks for. */
export interface PageRequest {
  /** Default 50, at most 200. */
  readonly limit?: number;
  /** `nextCursor` of the page before. */
  readonly cursor?: string;
}

export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `cursor` for the next page; null at the end. */
  readonly nextCursor: string | null;
}

export const defaultPageLimit = 50;
export const maxPageLimit = 200;

export const pageLimit = ({ limit = defaultPageLimit }: PageRequest): number =>
  Math.min(Math.max(limit, 1), maxPageLimit);

/** What a list query needs: `fetchLimit` rows below `cursor`, one more than fit, to see whether there are others. */
export function pageRequest({ limit: wanted = defaultPageLimit, cursor }: PageRequest): {
  readonly limit: number;
  readonly fetchLimit: number;
  readonly cursor: string | null;
} {
  if (cursor !== undefined) requireId(cursor);
  const limit = pageLimit({ limit: wanted });
  return { limit, fetchLimit: limit + 1, cursor: cursor ?? null };
}

/** A page of a list that is read as a whole, in the order of names. `cursor` is the last name of the page before. */
export function pageByName<T>(
  items: readonly T[],
  nameOf: (item: T) => string,
  request: PageRequest,
): Page<T> {
  const limit = pageLimit(request);
  const { cursor } = request;
  const rest = items
    .map((item) => ({ item, name: nameOf(item) }))
    .filter(({ name }) => cursor === undefined || name > cursor)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const page = rest.slice(0, limit);
  return {
    items: page.map(({ item }) => item),
    nextCursor: rest.length > limit ? (page.at(-1)?.name ?? null) : null,
  };
}

export function pageOf<T extends { readonly id: string }>(
  rows: readonly T[],
  limit: number,
  { isCut = false }: { readonly isCut?: boolean } = {},
): Page<T> {
  const items = rows.slice(0, limit);
  return { items, nextCursor: isCut || rows.length > limit ? (items.at(-1)?.id ?? null) : null };
}

/** Payloads in a page. 200 of the largest are 200 MiB, and several times that in the memory of the process that answers. */
const maxPageBytes = 4 * 1024 * 1024;

/** A row of `withinPageBytes`. */
export type Measured<T> = T & { readonly found: number; readonly bytesBefore: number | null };

/**
 * Of the rows that a query finds, in its order, those whose payloads fit into a page, and always the first; see `cutToBytes`.
 * `payload`: the column that may be large.
 */
export const withinPageBytes = (query: string, order: string, payload = 'payload'): string =>
  `select * from (
     select q.*, count(*) over ()::integer as found,
            sum(coalesce(octet_length(${payload}::text), 0)) over (order by ${order} rows between unbounded preceding and 1 preceding)::float8 as "bytesBefore"
       from (${query}) q) measured
    where "bytesBefore" is null or "bytesBefore" < ${maxPageBytes} order by ${order}`;

/** The rows of such a query, and whether others were left out. */
export function cutToBytes<T>(rows: readonly Measured<T>[]): {
  readonly rows: readonly T[];
  readonly isCut: boolean;
} {
  return {
    rows: rows.map(({ found: _, bytesBefore: __, ...row }) => row as unknown as T),
    isCut: (rows[0]?.found ?? 0) > rows.length,
  };
}
