import type { Dispatcher } from 'undici';
import { messageOf, TallymanError } from '../../../engine/errors.ts';

export interface Post {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** For all of it: name, connection, request, answer. */
  readonly timeoutMs: number;
  /** Gives up for other reasons; the exchange then throws what the signal's reason is. */
  readonly signal: AbortSignal;
}

export interface Exchange {
  readonly httpStatus: number | null;
  readonly headers: Readonly<Record<string, string | readonly string[]>> | null;
  /** The first 64 KiB, as text that Postgres can hold. */
  readonly body: string | null;
  /** Null when an answer came, whatever its status. */
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly durationMs: number;
  readonly startedAt: Date;
}

export const maxBodyBytes = 64 * 1024;

/** One POST. An answer counts once its body has ended or 64 KiB of it are there; redirects are answers like any other. */
export async function exchange(agent: Dispatcher, post: Post): Promise<Exchange> {
  const startedAt = new Date();
  const began = performance.now();
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new TallymanError('TIMEOUT', `no complete answer within ${post.timeoutMs} ms`)),
    post.timeoutMs,
  );
  const signal = AbortSignal.any([post.signal, timeout.signal]);
  let answer: Dispatcher.ResponseData | undefined;
  let body: string | null = null;
  let error: Exchange['error'] = null;
  try {
    const { origin, pathname, search } = new URL(post.url);
    answer = await agent.request({
      origin,
      path: pathname + search,
      method: 'POST',
      headers: post.headers,
      body: post.body,
      signal,
    });
    body = await firstBytes(answer.body);
  } catch (thrown) {
    post.signal.throwIfAborted();
    const problem = timeout.signal.aborted ? timeout.signal.reason : thrown;
    error = { code: codeOf(problem), message: describe(problem) };
  } finally {
    clearTimeout(timer);
  }
  return {
    httpStatus: answer?.statusCode ?? null,
    headers: answer ? plainHeaders(answer.headers) : null,
    body,
    error,
    durationMs: Math.round(performance.now() - began),
    startedAt,
  };
}

/** A body that never ends is not waited for. */
async function firstBytes(body: Dispatcher.ResponseData['body']): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    // Leaving the loop destroys the stream, and with it the connection.
    if (size >= maxBodyBytes) break;
  }
  const bytes = Buffer.concat(chunks).subarray(0, maxBodyBytes);
  // `stream`: a character that the limit cut in two is left out instead of shown as damage.
  return storable(new TextDecoder().decode(bytes, { stream: true }));
}

/** Postgres text holds no NUL. */
const storable = (text: string): string => text.replaceAll('\0', '\ufffd').toWellFormed();

function plainHeaders(headers: Dispatcher.ResponseData['headers']): Exchange['headers'] {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [[storable(name), Array.isArray(value) ? value.map(storable) : storable(value)] as const],
  );
  return Object.fromEntries(entries);
}

const codeOf = (error: unknown): string => {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'string' ? code : 'NETWORK';
};

/** Several addresses failed: undici and Node put them into one error without a text. */
const describe = (error: unknown): string =>
  storable(error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : messageOf(error)).slice(
    0,
    2000,
  );
