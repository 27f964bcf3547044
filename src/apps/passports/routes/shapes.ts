import { z } from 'zod';
import { page, text } from '../../../host/route.ts';
import type { DocumentFormat, DocumentProblem } from '../compile/types.ts';
import { passportError } from '../errors.ts';

export const uuid = z.uuid();
export const byId = z.strictObject({ id: uuid });
export const byProduct = z.strictObject({ product: text(128) });

/** For lists in the order of UUIDs: the cursor is one. */
export const pageByUuids = { ...page, cursor: uuid.optional() };

export const hash = z.string().describe('SHA-256, 64 hex digits');

export const problemShape = z.object({
  code: z.string(),
  row: z.number().nullable().describe('Counts from 1, the first line of a CSV included'),
  column: z.string().nullable(),
  message: z.string(),
});

/** Why something could not be made. */
export const failureShape = z.object({
  code: z.string(),
  message: z.string(),
  problems: z
    .array(z.object({ document: hash, row: z.number(), column: z.string() }))
    .describe('Where documents contradict each other; `document` is the SHA-256 of its bytes'),
});

/** What may be uploaded: the type of the content says which. */
export const tableTypes = ['text/csv', 'application/json'] as const;
export const formatOf = (contentType: string | undefined): DocumentFormat =>
  contentType?.startsWith('text/csv') ? 'csv' : 'json';

/** Refuses a file: the first problem as the message, all of them as details. */
export function badFile(problems: readonly DocumentProblem[]): Error {
  const [first] = problems;
  const place = [
    first?.row == null ? undefined : `row ${first.row}`,
    first?.column == null ? undefined : `column ${first.column}`,
  ].filter((part) => part !== undefined);
  const others = problems.length > 1 ? ` (and ${problems.length - 1} more, see details)` : '';
  return passportError(
    'VALIDATION_ERROR',
    `body: ${place.length > 0 ? `${place.join(', ')}: ` : ''}${first?.message ?? 'cannot be read'}${others}`,
    { problems },
  );
}
