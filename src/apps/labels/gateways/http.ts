import { Agent } from 'undici';
import { PermanentError, RetryLater, TallymanError } from '../../../engine/errors.ts';
import { HttpError, httpCall, isRetriableStatus, retryAfterMs } from '../../../engine/resilience/http.ts';
import { Semaphore } from '../../../engine/resilience/semaphore.ts';

export interface Call {
  readonly method: 'GET' | 'POST';
  /** Below the gateway's address, with its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly signal: AbortSignal;
  /** The most bytes of an answer that are read. */
  readonly maxBytes?: number;
}

export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly retryAfterMs: number | undefined;
}

/** A list of a thousand labels has about 300 kB. */
const defaultMaxBytes = 4 * 1024 * 1024;
/** A gateway that wants a longer wait is asked again after an hour. */
export const retryAfterLimits = { minMs: 0, maxMs: 60 * 60 * 1000 };

/** HTTP as a gateway needs it: one time limit for all of a call, answers of bounded size, redirects not followed. */
export class GatewayHttp {
  readonly #base: URL;
  readonly #agent: Agent;
  readonly #timeoutMs: number;
  readonly #turns: Semaphore;

  constructor(url: string, options: { readonly timeoutMs: number; readonly connections: number }) {
    this.#base = new URL(url);
    this.#timeoutMs = options.timeoutMs;
    this.#turns = new Semaphore(options.connections);
    this.#agent = new Agent({ connections: options.connections, connect: { timeout: options.timeoutMs } });
  }

  /** Where the gateway is, without credentials, for messages. */
  get address(): string {
    return this.#base.host;
  }

  /** Returns any HTTP answer; throws only if there was none. The time limit starts when the call gets its turn. */
  call(call: Call): Promise<Answer> {
    return this.#turns.run(() => this.#exchange(call), call.signal);
  }

  async #exchange(call: Call): Promise<Answer> {
    const { method, body, signal, maxBytes = defaultMaxBytes } = call;
    try {
      const answer = await httpCall({
        url: new URL(this.#base.origin + this.#base.pathname.replace(/\/$/, '') + call.path),
        method,
        headers: { accept: 'application/json', ...call.headers },
        ...(body !== undefined && { body }),
        timeoutMs: this.#timeoutMs,
        signal,
        maxBytes,
        dispatcher: this.#agent,
      });
      return {
        status: answer.status,
        retryAfterMs: retryAfterMs(answer.headers['retry-after'], Date.now(), retryAfterLimits),
        body: answer.body.toString('utf8'),
      };
    } catch (error) {
      throw error instanceof HttpError ? this.#problem(error, maxBytes) : error;
    }
  }

  #problem(error: HttpError, maxBytes: number): TallymanError {
    const [code, message] =
      error.failure === 'timeout'
        ? ['GATEWAY_TIMEOUT', `${this.address} did not answer within ${this.#timeoutMs} ms`]
        : error.failure === 'too-long'
          ? ['GATEWAY_ANSWER', `${this.address} answered with more than ${maxBytes} bytes`]
          : ['GATEWAY_UNREACHABLE', `${this.address}: ${error.message}`];
    return new TallymanError(code, message, { cause: error });
  }

  close(): Promise<void> {
    return this.#agent.close();
  }
}

/** The error for a refused call: permanent if a retry cannot help, else with the time to wait. */
export function refusal(
  gateway: string,
  status: number,
  said: string,
  retryAfterMs: number | undefined,
): TallymanError {
  const message = `${gateway} answered ${status}${said === '' ? '' : `: ${oneLine(said)}`}`;
  // An expired token is replaced.
  if (status !== 401 && !isRetriableStatus(status)) return new PermanentError('GATEWAY_REFUSED', message);
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
