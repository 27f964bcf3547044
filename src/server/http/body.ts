import type { FastifyInstance } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import { isKeepable } from '../../engine/validate.ts';

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
    if (isTooDeep(text as string))
      return done(
        new TallymanError('VALIDATION_ERROR', `body: is more than ${mostLevels} levels deep`),
        undefined,
      );
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

/** What is checked, stored and shown is walked through by functions that call themselves: deeper JSON would end their stack. */
const mostLevels = 100;

/** Looks at brackets outside of texts, without parsing, at each character once. */
function isTooDeep(json: string): boolean {
  let level = 0;
  let isText = false;
  for (let at = 0; at < json.length; at += 1) {
    const character = json[at];
    if (isText) {
      if (character === '\\') at += 1;
      else if (character === '"') isText = false;
    } else if (character === '"') isText = true;
    else if (character === '[' || character === '{') {
      level += 1;
      if (level > mostLevels) return true;
    } else if (character === ']' || character === '}') level -= 1;
  }
  return false;
}

/** For routes that accept CSV; other routes refuse it because they expect an object. */
export function acceptCsv(app: FastifyInstance): void {
  app.addContentTypeParser('text/csv', { parseAs: 'string' }, (_, text, done) => {
    if (isKeepable(text as string)) return done(null, text);
    done(new TallymanError('VALIDATION_ERROR', 'body: contains a NUL, which cannot be stored'), undefined);
  });
}

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
