import { idsOf } from './sql-function.ts';

/** What differs from the usual; see `tallyman.unusual`. */
export interface Unusual {
  readonly id?: string;
  readonly tenant?: string;
  readonly attempts?: number;
  readonly maxAttempts?: number;
  readonly correlation?: string;
  readonly scheduled?: number;
  readonly trace?: string;
  readonly early?: true;
  readonly superseded?: true;
  readonly keyed?: true;
  readonly large?: true;
}

/** Jobs as they are handed out: column by column. */
export interface JobColumns {
  readonly positions: readonly string[];
  readonly payloads: readonly unknown[];
  readonly kind: (i: number) => string;
  readonly created: (i: number) => number;
  readonly unusual: Readonly<Record<string, Unusual>> | undefined;
}

type Cell = string | null | undefined;

export function jobColumns(
  positions: Cell,
  kinds: Cell,
  payloads: Cell,
  created: Cell,
  unusual: Cell,
): JobColumns {
  return {
    positions: idsOf(positions),
    payloads: JSON.parse(`[${payloads ?? ''}]`),
    kind: oneOrMany<string>(kinds),
    created: oneOrMany<number>(created),
    unusual: unusual ? JSON.parse(unusual) : undefined,
  };
}

/** A value for all jobs, or one for each. */
function oneOrMany<T>(cell: Cell): (i: number) => T {
  const value = JSON.parse(cell ?? 'null');
  return Array.isArray(value) ? (i) => value[i] : () => value;
}
