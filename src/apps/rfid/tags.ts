/** Which tags count: those of GS1 alone, or all; some prefixes only, or all but some. Pure. */
import { canonicalEpc, decodeEpc, decodeRaw, type Epc } from './epc.ts';

export interface TagFilter {
  /** `gs1`: tags of 96 bits of a scheme that we decode; others are refused. `any`: others are kept by their hex digits. */
  readonly schemes: 'gs1' | 'any';
  /** Hex digits that a tag must begin with. Empty: any. */
  readonly include: readonly string[];
  /** Tags that begin with one of these are ignored. */
  readonly ignore: readonly string[];
}

export const defaultTags: TagFilter = { schemes: 'gs1', include: [], ignore: [] };

/** A tag that is nobody's business: it is counted, and nothing else happens. */
export function isIgnored({ include, ignore }: TagFilter, epc: string): boolean {
  if (include.length === 0 && ignore.length === 0) return false;
  const hex = canonicalEpc(epc);
  if (ignore.some((prefix) => hex.startsWith(prefix))) return true;
  return include.length > 0 && !include.some((prefix) => hex.startsWith(prefix));
}

/** Throws `BAD_EPC` for a tag that does not count. */
export function decodeTag({ schemes }: TagFilter, text: string): Epc {
  return schemes === 'any' ? decodeRaw(text) : decodeEpc(text);
}
