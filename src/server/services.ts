import type { AddressPolicyOptions } from '../apps/webhooks/network/addresses.ts';
import { Webhooks } from '../apps/webhooks/webhooks.ts';
import { DeadLetters } from '../engine/deadletters/dead-letters.ts';
import { Jobs } from '../engine/jobs/jobs.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import { Queues } from '../engine/jobs/queues.ts';
import { Lanes } from '../engine/lanes/lanes.ts';
import { Schedules } from '../engine/schedules/schedules.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import { Events } from '../events/events.ts';
import type { SecretBox } from '../secrets/box.ts';
import { ApiKeys } from './access/keys.ts';
import type { TenantScope } from './access/scope.ts';
import { Tenants } from './access/tenants.ts';
import { eventCatalogue } from './event-types.ts';

/** What the routes are made of, and what does not depend on who asks. */
export interface Ground {
  readonly tallyman: Tallyman;
  readonly box: SecretBox;
  /** Kinds whose definitions this process has; payloads of others are checked by the workers. */
  readonly kinds: ReadonlyMap<string, AnyKind>;
  readonly keepMs: number;
  readonly maxPayloadBytes: number;
  /** Where webhooks may go. */
  readonly addresses: AddressPolicyOptions;
}

/**
 * The engine's nouns, inside the transaction of one request. Whoever took another connection from the pool in there could
 * wait for ever: for one that somebody holds who waits for the same.
 */
export class Services {
  readonly ground: Ground;
  readonly #scope: TenantScope;

  constructor(ground: Ground, scope: TenantScope) {
    this.ground = ground;
    this.#scope = scope;
  }

  get jobs(): Jobs {
    return new Jobs(this.#scope, this.ground.keepMs);
  }

  get deadLetters(): DeadLetters {
    return new DeadLetters(this.#scope);
  }

  get lanes(): Lanes {
    return new Lanes(this.#scope);
  }

  get queues(): Queues {
    return new Queues(this.#scope);
  }

  get schedules(): Schedules {
    return new Schedules(this.#scope, { maxPayloadBytes: this.ground.maxPayloadBytes });
  }

  get events(): Events {
    return new Events(this.#scope, { catalogue: eventCatalogue });
  }

  get webhooks(): Webhooks {
    return new Webhooks(this.#scope, { box: this.ground.box, policy: this.ground.addresses });
  }

  get keys(): ApiKeys {
    return new ApiKeys(this.#scope, this.ground.box);
  }

  /** Only a route for the home tenant may look at these. */
  get tenants(): Tenants {
    return new Tenants(this.#scope);
  }
}
