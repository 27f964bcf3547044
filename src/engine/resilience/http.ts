import type { IncomingHttpHeaders } from 'node:http';
import { type Dispatcher, getGlobalDispatcher } from 'undici';
import { messageOf, TallymanError } from '../errors.ts';
import { deadline } from './deadline.ts';

export interface HttpCall {
  readonly url: URL;
  readonly method: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** Time limit for everything: name lookup, connection, request, answer. */
  readonly timeoutMs: number;
  /** Aborts for other reasons; the call then throws the signal's reason. */
  readonly signal: AbortSignal;
  readonly maxBytes: number;
  /** A longer answer fails, or only its beginning is read. Default `fail`. */
  readonly ifLonger?: 'fail' | 'cut';
  readonly dispatcher?: Dispatcher;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export type HttpFailure =
  /** It was not complete in time. */
  | 'timeout'
  /** No connection, or it broke. */
  | 'network'
  | 'too-long'
  /** A complete answer that is not the one wanted. */
  | 'status';

/** Why there is no good answer, and whether another attempt may get one. `code` is the network's own where it has one. */
export class HttpError extends TallymanError {
  override readonly name = 'HttpError';
  readonly failure: HttpFailure;
  readonly isRetriable: boolean;
  /** The part of the answer that arrived before it failed. */
  readonly partial: Pick<HttpAnswer, 'status' | 'headers'> | undefined;

  constructor(
    failure: HttpFailure,
    message: string,
    options: { code?: string; cause?: unknown; partial?: HttpError['partial'] } = {},
  ) {
    super(options.code ?? `HTTP_${failure.toUpperCase().replace('-', '_')}`, message, {
      cause: options.cause,
    });
    this.failure = failure;
    this.partial = options.partial;
    this.isRetriable =
      failure === 'status' ? isRetriableStatus(options.partial?.status ?? 500) : failure !== 'too-long';
  }
}

/** Requests that the server refused for what they are fail again; these, and what is wrong with the server, may pass. */
const passing = new Set([408, 409, 425, 429]);
export const isRetriableStatus = (status: number): boolean =>
  status < 400 || status >= 500 || passing.has(status);

/** One request. Any complete answer is an answer, a redirect too: it is not followed. Throws HttpError where there is none. */
export async function httpCall(call: HttpCall): Promise<HttpAnswer> {
  const { url, method, timeoutMs, maxBytes, dispatcher = getGlobalDispatcher() } = call;
  const limit = deadline(
    timeoutMs,
    call.signal,
    () => new HttpError('timeout', `no complete answer within ${timeoutMs} ms`, { code: 'TIMEOUT' }),
  );
  let answer: Dispatcher.ResponseData | undefined;
  try {
    answer = await dispatcher.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method,
      headers: call.headers ?? {},
      body: call.body ?? null,
      signal: limit.signal,
    });
    const body = await firstBytes(answer.body, maxBytes, call.ifLonger ?? 'fail');
    return { status: answer.statusCode, headers: answer.headers, body };
  } catch (thrown) {
    call.signal.throwIfAborted();
    const problem = limit.signal.aborted ? limit.signal.reason : thrown;
    const partial = answer && { status: answer.statusCode, headers: answer.headers };
    throw asHttpError(problem, partial);
  } finally {
    limit.clear();
  }
}

function asHttpError(problem: unknown, partial: HttpError['partial']): HttpError {
  const { code } = (problem ?? {}) as { code?: unknown };
  // Several addresses failed: undici and Node put them into one error without a text.
  const message =
    problem instanceof AggregateError ? problem.errors.map(messageOf).join('; ') : messageOf(problem);
  return new HttpError(problem instanceof HttpError ? problem.failure : 'network', message, {
    code: typeof code === 'string' ? code : 'NETWORK',
    cause: problem,
    partial,
  });
}

async function firstBytes(
  body: Dispatcher.ResponseData['body'],
  maxBytes: number,
  ifLonger: 'fail' | 'cut',
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > maxBytes && ifLonger === 'fail')
      throw new HttpError('too-long', `the answer is longer than ${maxBytes} bytes`);
    // Leaving the loop destroys the stream, and with it the connection: a body that never ends is not waited for.
    if (size >= maxBytes && ifLonger === 'cut') break;
  }
  return Buffer.concat(chunks).subarray(0, maxBytes);
}

/** `Retry-After` (RFC 9110, 10.2.3): seconds or a date, within the limits. Undefined: there is none that can be read. */
export function retryAfterMs(
  header: unknown,
  now: number,
  { minMs, maxMs }: { readonly minMs: number; readonly maxMs: number },
): number | undefined {
  const [first] = [header].flat();
  if (typeof first !== 'string') return undefined;
  const text = first.trim();
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isNaN(ms) ? undefined : Math.min(maxMs, Math.max(minMs, ms));
}
