import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { TallymanError } from '../../engine/errors.ts';
import type { Caller } from '../../host/route.ts';
import { keyIdOf } from '../access/keys.ts';

/** Of one tenant, in one process: each reads page after page from the database while it is sent. */
const mostOfTenant = 2;

/**
 * Answers that are read from the database while they are sent, such as exports. Their request has no turn any more, so
 * they are counted here. One ends early when its caller goes away, and soon after its key is revoked.
 */
export class StreamedAnswers {
  readonly #open = new Map<ServerResponse, Caller>();

  /** Counts it until it is sent; throws TENANT_BUSY where the tenant has too many. */
  open(caller: Caller, response: ServerResponse, body: Readable): void {
    if (response.destroyed) return void body.destroy();
    if (this.#of(caller.tenantId) >= mostOfTenant) {
      body.destroy();
      throw new TallymanError(
        'TENANT_BUSY',
        `this tenant is being sent ${mostOfTenant} streamed answers already; read one to its end, then try again`,
      );
    }
    this.#open.set(response, caller);
    response.once('close', () => {
      this.#open.delete(response);
      // Also after HEAD: what nobody gets is not read.
      body.destroy();
    });
  }

  /** Ends answers whose keys are not valid any more. */
  async endRevoked(stillValid: (keyIds: readonly string[]) => Promise<ReadonlySet<string>>): Promise<void> {
    const asked = new Set([...this.#open.values()].flatMap((caller) => keyIdOf(caller) ?? []));
    if (asked.size === 0) return;
    const valid = await stillValid([...asked]);
    for (const [response, caller] of [...this.#open]) {
      const keyId = keyIdOf(caller);
      // Cut off: an end would tell the caller that it has everything.
      if (keyId !== undefined && asked.has(keyId) && !valid.has(keyId)) response.destroy();
    }
  }

  #of(tenantId: string): number {
    let open = 0;
    for (const caller of this.#open.values()) if (caller.tenantId === tenantId) open += 1;
    return open;
  }
}
