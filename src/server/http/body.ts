import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import { isKeepable } from '../../engine/validate.ts';
import type { HeavyRequests } from '../access/heavy-requests.ts';
import { lineOf } from '../access/lines.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** What answers it; parsers of bodies do not get it otherwise. */
    response?: ServerResponse;
  }
}

type Done = (error: Error | null, body?: unknown) => void;

/**
 * Accepts JSON, and CSV for the routes that take it (others refuse it, because they expect an object). Refuses text that
 * PostgreSQL cannot store, a NUL or half a surrogate pair: here the name of the field is still known.
 */
export function acceptBodies(app: FastifyInstance, heavy: HeavyRequests): void {
  app.addHook('preParsing', (request, reply, _body, done) => {
    request.response = reply.raw;
    done();
  });
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    const text = body as string;
    // An optional body may also be sent empty.
    if (text === '') return done(null, undefined);
    inTurn(heavy, request, text.length, done, (answer) => {
      if (isTooDeep(text))
        return answer(new TallymanError('VALIDATION_ERROR', `body: is more than ${mostLevels} levels deep`));
      parse(request, text, (error, value) => {
        if (error) return answer(error);
        const field = /\\u(0000|d[89a-f])/i.test(text) ? unkeepable(value, 'body') : undefined;
        if (field === undefined) return answer(null, value);
        answer(
          new TallymanError(
            'VALIDATION_ERROR',
            `${field}: contains a NUL or half a surrogate pair, which cannot be stored`,
            {
              details: { fields: [{ path: field }] },
            },
          ),
        );
      });
    });
  });
  app.addContentTypeParser('text/csv', { parseAs: 'string' }, (request, body, done) => {
    const text = body as string;
    inTurn(heavy, request, text.length, done, (answer) => {
      if (isKeepable(text)) return answer(null, text);
      answer(new TallymanError('VALIDATION_ERROR', 'body: contains a NUL, which cannot be stored'));
    });
  });
}

/** Parses a small body at once, and a large one when it is its line's turn. */
export function inTurn(
  heavy: HeavyRequests,
  { caller, response }: FastifyRequest,
  bytes: number,
  done: Done,
  parsing: (answer: Done) => void,
): void {
  if (!heavy.isHeavy(bytes) || !response) return parsing(done);
  const line = lineOf(caller);
  heavy.enter({ line, response }).then(
    (isThere) => {
      // Nobody is left to be answered.
      if (!isThere) return;
      // Others come before it is checked, too.
      parsing(async (error, value) => {
        await heavy.letOthersPass(line);
        done(error, value);
      });
    },
    (refusal: Error) => done(refusal),
  );
}

/** What is checked, stored and shown is walked through by functions that call themselves: deeper JSON would end their stack. */
const mostLevels = 100;

/** Whether there are more brackets than levels, counted by the fastest search there is: most large bodies are flat. */
function mayBeTooDeep(json: string): boolean {
  let brackets = 0;
  for (const bracket of '[{')
    for (let at = json.indexOf(bracket); at >= 0; at = json.indexOf(bracket, at + 1)) {
      brackets += 1;
      if (brackets > mostLevels) return true;
    }
  return false;
}

/** Looks at brackets outside of texts, without parsing. Texts are skipped by search, since they are most of a large body. */
function isTooDeep(json: string): boolean {
  if (!mayBeTooDeep(json)) return false;
  let level = 0;
  for (let at = 0; at < json.length; at += 1) {
    const character = json[at];
    if (character === '"') {
      at = endOfText(json, at);
      if (at < 0) return false;
    } else if (character === '[' || character === '{') {
      level += 1;
      if (level > mostLevels) return true;
    } else if (character === ']' || character === '}') level -= 1;
  }
  return false;
}

/** Where the text that begins at a quotation mark ends; -1: it does not. */
function endOfText(json: string, beginsAt: number): number {
  let at = beginsAt;
  let backslashes = 0;
  do {
    at = json.indexOf('"', at + 1);
    backslashes = 0;
    while (json[at - 1 - backslashes] === '\\') backslashes += 1;
  } while (backslashes % 2 === 1);
  return at;
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
