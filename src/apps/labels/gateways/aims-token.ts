import { z } from 'zod';
import { RetryLater, TallymanError } from '../../../engine/errors.ts';
import { orAborted } from '../../../engine/resilience/deadline.ts';
import { type GatewayHttp, refusal } from './http.ts';

const tokenAnswer = z.object({
  responseMessage: z.object({
    access_token: z.string().min(1),
    expires_in: z.coerce.number().positive(),
  }),
});

/** A fifth of its life before a token ends, at most this long, it is replaced. */
const renewBeforeMs = 60_000;
/** Wrong credentials are not tried again before this: accounts get locked. */
const refusedForMs = 30_000;
const maxBytes = 64 * 1024;

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/**
 * The token of AIMS. One request for it at a time, whoever waits gets its outcome; it is asked for before the old one
 * ends. A caller that was told 401 names the token it used: if there is a newer one by then, that is the answer, so a
 * hundred calls that fail together make one request.
 */
export class AimsToken {
  readonly #http: GatewayHttp;
  readonly #credentials: Credentials;
  #current: { readonly token: string; readonly renewAt: number } | undefined;
  #underWay: Promise<string> | undefined;
  #refused: { readonly until: number; readonly error: TallymanError } | undefined;

  constructor(http: GatewayHttp, credentials: Credentials) {
    this.#http = http;
    this.#credentials = credentials;
  }

  /** A token that is good as far as we know. `not` is one that the gateway has just refused. */
  async get(signal: AbortSignal, not?: string): Promise<string> {
    const current = this.#current;
    if (current && current.token !== not && Date.now() < current.renewAt) return current.token;
    this.#underWay ??= this.#fetched();
    return orAborted(this.#underWay, signal);
  }

  async #fetched(): Promise<string> {
    try {
      return await this.#fetch();
    } finally {
      this.#underWay = undefined;
    }
  }

  /** Bound to no caller's signal: others wait for it too. The time limit of the connection ends it. */
  async #fetch(): Promise<string> {
    if (this.#refused && Date.now() < this.#refused.until)
      throw new RetryLater(this.#refused.until - Date.now(), this.#refused.error.message);
    const { status, body, retryAfterMs } = await this.#http.call({
      method: 'POST',
      path: '/api/v2/token',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(this.#credentials),
      signal: new AbortController().signal,
      maxBytes,
    });
    // What AIMS says is not passed on: it may repeat what we sent.
    if (status === 401 || status === 403 || status === 406) {
      const error = new TallymanError(
        'GATEWAY_CREDENTIALS',
        `AIMS refused the user name or password (${status})`,
      );
      this.#refused = { until: Date.now() + refusedForMs, error };
      throw new RetryLater(refusedForMs, error.message);
    }
    if (status !== 200) throw retryable(status, retryAfterMs);
    const { access_token: token, expires_in: seconds } = readToken(body);
    const lifeMs = seconds * 1000;
    this.#current = { token, renewAt: Date.now() + lifeMs - Math.min(lifeMs / 5, renewBeforeMs) };
    this.#refused = undefined;
    return token;
  }
}

/** Without a token nothing can be pushed, and that is no label's fault: it is never permanent. */
const retryable = (status: number, retryAfterMs: number | undefined): TallymanError => {
  const error = refusal('AIMS, asked for a token,', status, '', retryAfterMs);
  return error instanceof RetryLater ? error : new TallymanError('GATEWAY_FAILED', error.message);
};

function readToken(body: string): z.infer<typeof tokenAnswer>['responseMessage'] {
  try {
    return tokenAnswer.parse(JSON.parse(body)).responseMessage;
  } catch {
    throw new TallymanError(
      'GATEWAY_ANSWER',
      'AIMS answered the request for a token with something else than a token',
    );
  }
}
