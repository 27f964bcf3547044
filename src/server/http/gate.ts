import { TLSSocket } from 'node:tls';
import type { FastifyRequest } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import { homeTenant } from '../../host/roles.ts';
import type { Caller } from '../../host/route.ts';
import { callerAddress, callerNetwork } from '../access/caller-network.ts';
import type { ApiKeys } from '../access/keys.ts';
import { notLocal } from '../access/local.ts';
import { RateLimit } from '../access/rate-limit.ts';
import { StreamedAnswers } from './streamed-answers.ts';

export class RateLimitedError extends TallymanError {
  readonly retryAfterS: number;

  constructor(retryAfterS: number) {
    super('RATE_LIMITED', `too many requests; try again in ${retryAfterS} s`);
    this.retryAfterS = retryAfterS;
  }
}

export interface GateOptions {
  readonly ratePerSecond: number;
  readonly burst: number;
  /** The limit of all keys of a tenant together, as a multiple of that of one key. */
  readonly tenantFactor: number;
  /** The server listens on loopback only. */
  readonly isLoopback: boolean;
}

/**
 * Authenticates callers: by key; or, before the first key has ever been made, as the administrator of the home tenant if
 * server and caller are on loopback (`notLocal`).
 */
export class Gate {
  readonly #keys: ApiKeys;
  readonly perKey: RateLimit;
  /** However many keys it makes. */
  readonly perTenant: RateLimit;
  readonly streamed = new StreamedAnswers();
  readonly #perStranger: RateLimit;
  readonly #used = new Set<string>();
  /** Never true again. */
  #mayBeOpen: boolean;

  constructor(keys: ApiKeys, { ratePerSecond, burst, tenantFactor, isLoopback }: GateOptions) {
    this.#keys = keys;
    this.#mayBeOpen = isLoopback;
    this.perKey = new RateLimit(ratePerSecond, burst, { isShared: true });
    this.perTenant = new RateLimit(ratePerSecond * tenantFactor, burst * tenantFactor, { isShared: true });
    this.#perStranger = new RateLimit(ratePerSecond, burst);
  }

  async admit(request: FastifyRequest): Promise<Caller> {
    const header = request.headers.authorization;
    if (header === undefined && (await this.#isOpen())) return trusted(request);
    const waitS = this.#waitOfStranger(request);
    const key = /^Bearer ([\x21-\x7e]{1,256})$/i.exec(header ?? '')?.[1];
    if (key === undefined) {
      if (waitS > 0) throw new RateLimitedError(waitS);
      throw new TallymanError(
        'UNAUTHENTICATED',
        'an API key is needed: Authorization: Bearer tlm_…; to make one, run: tallyman keys create --role admin --name <name>',
      );
    }
    const apiKey = await this.#keys.verify(key);
    if (!apiKey) {
      if (waitS > 0) throw new RateLimitedError(waitS);
      throw new TallymanError('UNAUTHENTICATED', 'this API key is not known, has expired or was revoked');
    }
    const keyWaitS = this.perKey.take(apiKey.id);
    if (keyWaitS > 0) throw new RateLimitedError(keyWaitS);
    const { tenantId, role, access } = apiKey;
    const tenantWaitS = this.perTenant.take(`tenant:${tenantId}`);
    if (tenantWaitS > 0) throw new RateLimitedError(tenantWaitS);
    this.#used.add(apiKey.id);
    return { tenantId, role, access, actor: `key:${apiKey.id}` };
  }

  /** For routes that need no key. Without one nothing is known of the caller, also where no key exists. */
  async admitPublic(request: FastifyRequest): Promise<Caller | undefined> {
    if (request.headers.authorization !== undefined) return this.admit(request);
    this.admitStranger(request);
    return undefined;
  }

  /** For what is the same for everybody: no key is looked at. */
  admitStranger(request: FastifyRequest): void {
    const waitS = this.#waitOfStranger(request);
    if (waitS > 0) throw new RateLimitedError(waitS);
  }

  #waitOfStranger(request: FastifyRequest): number {
    return this.#perStranger.take(callerNetwork(callerAddress(request) ?? ''));
  }

  /** Asked at every request, because other processes make keys, too; once there was one, never again. */
  async #isOpen(): Promise<boolean> {
    if (this.#mayBeOpen && (await this.#keys.haveExisted())) this.#mayBeOpen = false;
    return this.#mayBeOpen;
  }

  /** Ends streamed answers of callers whose keys were revoked or have expired meanwhile. */
  endRevoked(): Promise<void> {
    return this.streamed.endRevoked((ids) => this.#keys.stillValid(ids));
  }

  async noteUse(): Promise<void> {
    const ids = [...this.#used];
    this.#used.clear();
    if (ids.length > 0) await this.#keys.used(ids);
  }
}

/** The caller of a request without a key, while no key has existed. The connection counts, not what a proxy says of its own. */
function trusted({ socket, headers }: FastifyRequest): Caller {
  const protocol = socket instanceof TLSSocket ? 'https' : 'http';
  const why = notLocal({ protocol, peer: socket.remoteAddress, headers });
  if (why !== undefined)
    throw new TallymanError(
      'UNAUTHENTICATED',
      `without API keys only programs on this machine are answered, and this request is refused: ${why}; make a key with: ` +
        'tallyman keys create --role admin --name <name>',
    );
  return { tenantId: homeTenant, role: 'admin', access: null, actor: 'anonymous' };
}
