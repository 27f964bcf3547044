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

/** A token is replaced when a fifth of its life is left, at most this long before its end. */
const renewBeforeMs = 60_000;
/** Wrong credentials are not tried again for this long, because AIMS locks accounts. */
const refusedForMs = 30_000;
const maxBytes = 64 * 1024;

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/**
 * The AIMS token. One request for it at a time, shared by all callers that wait; a new one is requested before the old one
 * expires. A caller that got a 401 names the token it used. If there is a newer one by then, it gets that one, so a
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

  /** A token that should still be valid. `not` is one that the gateway has just refused. */
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

  /** Uses no caller's signal, because other callers wait for it too. The connection's time limit ends it. */
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
    // Do not pass on what AIMS says: it may repeat our credentials.
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

/** A refused token request is never permanent: nothing can be pushed without a token, and no label caused it. */
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
