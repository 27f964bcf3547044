import { z } from 'zod';

/**
 * One setting. It is read from the configuration file (as a path of nested objects), from its environment variable, and
 * from aliases that are common in such systems. The environment wins over the file; an earlier name wins over a later one.
 */
export interface Key<T> {
  readonly schema: z.ZodType<T>;
  readonly env: readonly string[];
  /** `tallyman config --docs` prints it. */
  readonly doc: string;
  readonly fallback: T;
  /** Printed as `…`. */
  readonly secret?: boolean;
  /** Environment values are in other units than the key. */
  readonly scale?: Readonly<Record<string, number>>;
}

/** The keys of one part of the product, by name. */
// biome-ignore lint/suspicious/noExplicitAny: keys of different types have no other common type
export type ConfigKeys = Readonly<Record<string, Key<any>>>;

/** The values of loaded keys. */
export type ValuesOf<K extends ConfigKeys> = {
  readonly [N in keyof K]: K[N] extends Key<infer T> ? T : never;
};

export const key = <T>(definition: Key<T>): Key<T> => definition;

export const whole = (min: number, max = Number.MAX_SAFE_INTEGER) => z.int().min(min).max(max);

export const optionalUrl = (...protocols: string[]) =>
  z
    .string()
    .refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
      error: `expected an address that begins with ${protocols.map((p) => `${p}//`).join(' or ')}`,
    })
    .nullable();
