import { defaultPageLimit, maxPageLimit, type Page, type PageRequest } from '../../../engine/paging.ts';

/** Lists here go by text (names, UUIDs, serial numbers). `cursor` is the last of the page before. */
export const textPage = ({ limit = defaultPageLimit, cursor }: PageRequest) => {
  const size = Math.min(Math.max(limit, 1), maxPageLimit);
  return { size, fetch: size + 1, cursor: cursor ?? '' };
};

export function textPageOf<T>(
  rows: readonly T[],
  size: number,
  nameOf: (row: T) => string,
  { isCut = false }: { readonly isCut?: boolean } = {},
): Page<T> {
  const items = rows.slice(0, size);
  const last = items.at(-1);
  return { items, nextCursor: (isCut || rows.length > size) && last !== undefined ? nameOf(last) : null };
}
