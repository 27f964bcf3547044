import type { Dispatcher } from 'undici';
import { type HttpAnswer, HttpError, httpCall } from '../../../engine/resilience/http.ts';

export interface Post {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Time limit for everything: name lookup, connection, request, answer. */
  readonly timeoutMs: number;
  /** Aborts for other reasons; the exchange then throws the signal's reason. */
  readonly signal: AbortSignal;
}

export interface Exchange {
  readonly httpStatus: number | null;
  readonly headers: Readonly<Record<string, string | readonly string[]>> | null;
  /** The first 64 KiB, as text that PostgreSQL can store. */
  readonly body: string | null;
  /** Null if an answer came, whatever its status. */
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly durationMs: number;
  readonly startedAt: Date;
}

const maxBodyBytes = 64 * 1024;

/** Sends one POST. An answer counts when its body has ended or 64 KiB of it have arrived; redirects are not followed. */
export async function exchange(dispatcher: Dispatcher, post: Post): Promise<Exchange> {
  const startedAt = new Date();
  const began = performance.now();
  const took = () => ({ durationMs: Math.round(performance.now() - began), startedAt });
  const { url, ...call } = post;
  try {
    const { status, headers, body } = await httpCall({
      ...call,
      url: new URL(url),
      method: 'POST',
      maxBytes: maxBodyBytes,
      ifLonger: 'cut',
      dispatcher,
    });
    return { httpStatus: status, headers: plainHeaders(headers), body: textOf(body), error: null, ...took() };
  } catch (problem) {
    if (!(problem instanceof HttpError)) throw problem;
    const { code, message, partial } = problem;
    return {
      httpStatus: partial?.status ?? null,
      headers: partial ? plainHeaders(partial.headers) : null,
      body: null,
      error: { code, message: storable(message).slice(0, 2000) },
      ...took(),
    };
  }
}

/** `stream`: leaves out a character that the limit cut in two instead of showing it as damaged. */
const textOf = (body: Buffer): string => storable(new TextDecoder().decode(body, { stream: true }));

/** Postgres text holds no NUL. */
const storable = (text: string): string => text.replaceAll('\0', '\ufffd').toWellFormed();

function plainHeaders(headers: HttpAnswer['headers']): Exchange['headers'] {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [[storable(name), Array.isArray(value) ? value.map(storable) : storable(value)] as const],
  );
  return Object.fromEntries(entries);
}
