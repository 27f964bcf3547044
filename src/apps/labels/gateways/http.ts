import { Agent, type Dispatcher } from 'undici';
import { messageOf, PermanentError, RetryLater, TallymanError } from '../../../engine/errors.ts';

export interface Call {
  readonly method: 'GET' | 'POST';
  /** Below the gateway's address, with its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly signal: AbortSignal;
  /** More than this of an answer is not read. */
  readonly maxBytes?: number;
}

export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly retryAfterMs: number | undefined;
}

/** A list of a thousand labels has about 300 kB. */
const defaultMaxBytes = 4 * 1024 * 1024;
/** Whoever asks for more is asked again then. */
const longestWaitMs = 60 * 60 * 1000;

/** HTTP as a gateway needs it: one time limit for all of a call, answers of bounded size, redirects not followed. */
export class GatewayHttp {
  readonly #base: URL;
  readonly #agent: Agent;
  readonly #timeoutMs: number;
  readonly #turns: Turns;

  constructor(url: string, options: { readonly timeoutMs: number; readonly connections: number }) {
    this.#base = new URL(url);
    this.#timeoutMs = options.timeoutMs;
    this.#turns = new Turns(options.connections);
    this.#agent = new Agent({ connections: options.connections, connect: { timeout: options.timeoutMs } });
  }

  /** Where the gateway is, without credentials, for messages. */
  get address(): string {
    return this.#base.host;
  }

  /** Any answer is an answer; throws only where there was none. */
  async call(call: Call): Promise<Answer> {
    await this.#turns.take(call.signal);
    try {
      return await this.#exchange(call);
    } finally {
      this.#turns.giveBack();
    }
  }

  async #exchange(call: Call): Promise<Answer> {
    const timeout = new AbortController();
    const timer = setTimeout(
      () =>
        timeout.abort(
          new TallymanError('GATEWAY_TIMEOUT', `${this.address} did not answer within ${this.#timeoutMs} ms`),
        ),
      this.#timeoutMs,
    );
    try {
      const answer = await this.#agent.request({
        origin: this.#base.origin,
        path: this.#base.pathname.replace(/\/$/, '') + call.path,
        method: call.method,
        headers: { accept: 'application/json', ...call.headers },
        body: call.body ?? null,
        signal: AbortSignal.any([call.signal, timeout.signal]),
      });
      return {
        status: answer.statusCode,
        retryAfterMs: retryAfter(answer.headers['retry-after'], Date.now()),
        body: await this.#bounded(answer.body, call.maxBytes ?? defaultMaxBytes),
      };
    } catch (error) {
      call.signal.throwIfAborted();
      if (timeout.signal.aborted) throw timeout.signal.reason;
      if (error instanceof TallymanError) throw error;
      throw new TallymanError('GATEWAY_UNREACHABLE', `${this.address}: ${reasonOf(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  async #bounded(body: Dispatcher.ResponseData['body'], most: number): Promise<string> {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length;
      // Leaving the loop destroys the stream, and with it the connection.
      if (size > most)
        throw new TallymanError('GATEWAY_ANSWER', `${this.address} answered with more than ${most} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString('utf8');
  }

  close(): Promise<void> {
    return this.#agent.close();
  }
}

/** So many at once. The others wait in line, and the time of their call does not run meanwhile. */
class Turns {
  #free: number;
  readonly #line: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most;
  }

  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        this.#line.splice(this.#line.indexOf(turn), 1);
        reject(signal.reason);
      };
      const turn = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#line.push(turn);
    });
  }

  /** The next in line takes it over, so that nobody who comes later can step in between. */
  giveBack(): void {
    const next = this.#line.shift();
    if (next) next();
    else this.#free += 1;
  }
}

/** Seconds or a date (RFC 9110, 10.2.3); what is neither is not there. */
export function retryAfter(header: string | string[] | undefined, now: number): number | undefined {
  const text = (Array.isArray(header) ? header[0] : header)?.trim();
  if (text === undefined || text === '') return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), longestWaitMs);
}

/** Statuses that may be gone the next time. */
const passing = new Set([401, 408, 409, 425, 429]);

/** The error for an answer that is none: permanent where asking again cannot help, else with the time to wait. */
export function refusal(
  gateway: string,
  status: number,
  said: string,
  retryAfterMs: number | undefined,
): TallymanError {
  const message = `${gateway} answered ${status}${said === '' ? '' : `: ${oneLine(said)}`}`;
  if (status >= 400 && status < 500 && !passing.has(status))
    return new PermanentError('GATEWAY_REFUSED', message);
  if (retryAfterMs !== undefined) return new RetryLater(retryAfterMs, message);
  if (status >= 300 && status < 400)
    return new TallymanError(
      'GATEWAY_REDIRECT',
      `${message}; redirects are not followed: set the address it is at now`,
    );
  return new TallymanError('GATEWAY_FAILED', message);
}

const oneLine = (text: string): string => {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
};

const reasonOf = (error: unknown): string =>
  error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : messageOf(error);
