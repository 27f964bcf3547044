import type { FastifyInstance } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';

/**
 * Accepts only JSON, and only text that PostgreSQL can store: a NUL or half a surrogate pair would fail later, in the middle
 * of a statement, without the name of the field.
 */
export function acceptJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, text, done) => {
    // An optional body may also be sent empty.
    if (text === '') return done(null, undefined);
    parse(request, text as string, (error, value) => {
      if (error) return done(error, undefined);
      const field = /\\u(0000|d[89a-f])/i.test(text as string) ? unkeepable(value, 'body') : undefined;
      if (field === undefined) return done(null, value);
      done(
        new TallymanError(
          'VALIDATION_ERROR',
          `${field}: contains a NUL or half a surrogate pair, which cannot be stored`,
          {
            details: { fields: [{ path: field }] },
          },
        ),
        undefined,
      );
    });
  });
}

/** For routes that accept CSV; other routes refuse it because they expect an object. */
export function acceptCsv(app: FastifyInstance): void {
  app.addContentTypeParser('text/csv', { parseAs: 'string' }, (_, text, done) => {
    if (isKeepable(text as string)) return done(null, text);
    done(new TallymanError('VALIDATION_ERROR', 'body: contains a NUL, which cannot be stored'), undefined);
  });
}

export const isKeepable = (text: string): boolean => !text.includes('\0') && text.isWellFormed();

/** The path of the first text that cannot be stored. */
function unkeepable(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return isKeepable(value) ? undefined : path;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, inner] of Object.entries(value)) {
    if (!isKeepable(key)) return path;
    const found = unkeepable(inner, `${path}.${key}`);
    if (found !== undefined) return found;
  }
  return undefined;
}
