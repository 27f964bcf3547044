/** Values that keys of several kinds have. */
import { z } from 'zod';
import { isSlug } from './domain/zones.ts';

export const slug = z.string().refine(isSlug, {
  error: 'expected a slug: up to 63 lower-case letters, digits and single hyphens, such as plant-a',
});

/** The text of a variable is JSON. */
export const orJson = <T>(schema: z.ZodType<T>): z.ZodType<T> =>
  z.preprocess((value) => {
    if (typeof value !== 'string') return value;
    try {
      return JSON.parse(value);
    } catch {
      return value;
    }
  }, schema);
