import type { FastifyInstance } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';

/**
 * JSON only, and only text that PostgreSQL can keep: a NUL or half a surrogate pair would fail later, in the middle of a
 * statement, and say nothing about which field it was.
 */
export function acceptJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, text, done) => {
    // A body that may be left out may be sent empty, too.
    if (text === '') return done(null, undefined);
    parse(request, text as string, (error, value) => {
      if (error) return done(error, undefined);
      const field = /\\u(0000|d[89a-f])/i.test(text as string) ? unkeepable(value, 'body') : undefined;
      if (field === undefined) return done(null, value);
      done(
        new TallymanError(
          'VALIDATION_ERROR',
          `${field}: holds a NUL or half a surrogate pair, which cannot be kept`,
          {
            details: { fields: [{ path: field }] },
          },
        ),
        undefined,
      );
    });
  });
}

/** For the routes that take a table; to the others it is a text where they expect an object. */
export function acceptCsv(app: FastifyInstance): void {
  app.addContentTypeParser('text/csv', { parseAs: 'string' }, (_, text, done) => {
    if (isKeepable(text as string)) return done(null, text);
    done(new TallymanError('VALIDATION_ERROR', 'body: holds a NUL, which cannot be kept'), undefined);
  });
}

export const isKeepable = (text: string): boolean => !text.includes('\0') && text.isWellFormed();

/** The path of the first text that cannot be kept. */
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
