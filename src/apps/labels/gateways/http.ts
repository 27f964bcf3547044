import type { Agent } from 'undici';
import { PermanentError, RetryLater, TallymanError } from '../../../engine/errors.ts';
import { HttpError, httpCall, isRetriableStatus, retryAfterMs } from '../../../engine/resilience/http.ts';
import { Semaphore } from '../../../engine/resilience/semaphore.ts';
import { AddressPolicy } from '../../../network/addresses.ts';
import { guardedAgent } from '../../../network/guarded-agent.ts';
import { type Network, realNetwork } from '../../../network/network.ts';
import { policyNames } from './policy.ts';
import type { ReportLimits } from './report-limits.ts';

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

/** Where the connections of a gateway may go. */
export interface GatewayGuard {
  /** Default: anywhere, for programs whose stores are all their own. */
  readonly policy?: AddressPolicy;
  readonly network?: Network;
  /** What one report may take. */
  readonly report?: Partial<ReportLimits>;
}

const anyAddress = new AddressPolicy({ allowPrivate: true, requireHttps: false, names: policyNames });

/** HTTP as a gateway needs it: one time limit for all of a call, answers of bounded size, redirects not followed. */
export class GatewayHttp {
  readonly #base: URL;
  readonly #agent: Agent;
  readonly #timeoutMs: number;
  readonly #turns: Semaphore;

  constructor(
    url: string,
    options: { readonly timeoutMs: number; readonly connections: number } & GatewayGuard,
  ) {
    this.#base = new URL(url);
    this.#timeoutMs = options.timeoutMs;
    this.#turns = new Semaphore(options.connections);
    const { policy = anyAddress, network = realNetwork() } = options;
    this.#agent = guardedAgent(policy, network, { connections: options.connections });
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

/** The beginning of a line of plain words. Anything else may be the content of something that is no gateway. */
const oneLine = (text: string): string => {
  const line = text.replace(/\s+/g, ' ').trim();
  if (!/^[\p{L}\p{N} .,:;()'!?_/-]*$/u.test(line)) return 'a reason that is not shown';
  return line.length > 100 ? `${line.slice(0, 100)}…` : line;
};
