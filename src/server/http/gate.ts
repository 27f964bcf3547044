import type { FastifyRequest } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import { homeTenant } from '../../host/roles.ts';
import type { Caller } from '../../host/route.ts';
import type { ApiKeys } from '../access/keys.ts';
import { RateLimit } from '../access/rate-limit.ts';

export class RateLimitedError extends TallymanError {
  readonly retryAfterS: number;

  constructor(retryAfterS: number) {
    super('RATE_LIMITED', `too many requests; try again in ${retryAfterS} s`);
    this.retryAfterS = retryAfterS;
  }
}

/** How long after another process creates the first key this process still accepts requests without one. */
const lookEveryMs = 2_000;

const loopbackNames = new Set(['localhost', '127.0.0.1', '[::1]']);

/**
 * Authenticates callers: by key; or, while no key exists, everybody on loopback is the administrator of the home tenant.
 */
export class Gate {
  readonly #keys: ApiKeys;
  readonly #perKey: RateLimit;
  readonly #perStranger: RateLimit;
  readonly #used = new Set<string>();
  #open = true;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(keys: ApiKeys, limits: { readonly ratePerSecond: number; readonly burst: number }) {
    this.#keys = keys;
    this.#perKey = new RateLimit(limits.ratePerSecond, limits.burst);
    this.#perStranger = new RateLimit(limits.ratePerSecond, limits.burst);
  }

  async admit(request: FastifyRequest): Promise<Caller> {
    const header = request.headers.authorization;
    if (header === undefined && (await this.#isOpen())) return this.#trusted(request);
    const waitS = this.#perStranger.take(request.ip);
    const key = /^Bearer ([\x21-\x7e]{1,256})$/i.exec(header ?? '')?.[1];
    if (key === undefined) {
      if (waitS > 0) throw new RateLimitedError(waitS);
      throw new TallymanError('UNAUTHENTICATED', 'an API key is needed: Authorization: Bearer tlm_…');
    }
    const apiKey = await this.#keys.verify(key);
    if (!apiKey) {
      if (waitS > 0) throw new RateLimitedError(waitS);
      throw new TallymanError('UNAUTHENTICATED', 'this API key is not known, has expired or was revoked');
    }
    const keyWaitS = this.#perKey.take(apiKey.id);
    if (keyWaitS > 0) throw new RateLimitedError(keyWaitS);
    this.#used.add(apiKey.id);
    return { tenantId: apiKey.tenantId, role: apiKey.role, actor: `key:${apiKey.id}` };
  }

  /** Whether no key exists. Checked again regularly, because other processes create keys, too. */
  async #isOpen(): Promise<boolean> {
    if (!this.#open) return false;
    if (performance.now() - this.#lookedAt > lookEveryMs) {
      this.#open = !(await this.#keys.any());
      this.#lookedAt = performance.now();
    }
    return this.#open;
  }

  /** In the process that creates the first key, keys are required at once. */
  keyMade(): void {
    this.#open = false;
  }

  /** A web page in a browser on this machine can reach loopback under its own host name; such requests are not trusted. */
  #trusted(request: FastifyRequest): Caller {
    const name = (request.headers.host ?? '').replace(/:\d+$/, '');
    const { origin } = request.headers;
    const local = loopbackNames.has(name) && (origin === undefined || loopbackNames.has(hostOf(origin)));
    if (!local)
      throw new TallymanError(
        'FORBIDDEN',
        'without API keys only requests to localhost are answered; make a key with: tallyman keys create',
      );
    return { tenantId: homeTenant, role: 'admin', actor: 'anonymous' };
  }

  async noteUse(): Promise<void> {
    const ids = [...this.#used];
    this.#used.clear();
    if (ids.length > 0) await this.#keys.used(ids);
  }
}

const hostOf = (origin: string): string =>
  URL.canParse(origin) ? new URL(origin).hostname.replace(/^(?=.*:)([^[].*)$/, '[$1]') : origin;
