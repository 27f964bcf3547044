import type { TenantScope } from '../engine/database/tenant.ts';
import { DeadLetters } from '../engine/deadletters/dead-letters.ts';
import { Jobs } from '../engine/jobs/jobs.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import { Queues } from '../engine/jobs/queues.ts';
import { Lanes } from '../engine/lanes/lanes.ts';
import { Schedules } from '../engine/schedules/schedules.ts';
import { Events } from '../events/events.ts';
import type { RouteHost } from './app.ts';

/** What the API uses, the same for every request. */
export interface ServerDependencies extends RouteHost {
  /** Kinds whose definitions this process has; payloads of others are checked by the workers. */
  readonly kinds: ReadonlyMap<string, AnyKind>;
}

/**
 * The engine's modules, inside the transaction of one request. None of them takes another connection from the pool: requests
 * that hold one and wait for a second would wait for each other forever.
 */
export class Services {
  readonly host: ServerDependencies;
  readonly #scope: TenantScope;

  constructor(host: ServerDependencies, scope: TenantScope) {
    this.host = host;
    this.#scope = scope;
  }

  get jobs(): Jobs {
    return new Jobs(this.#scope, this.host.config['retention.keepMs']);
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

  get events(): Events {
    return new Events(this.#scope, { catalogue: this.host.catalogue });
  }

  get schedules(): Schedules {
    return new Schedules(this.#scope, {
      maxPayloadBytes: this.host.config['jobs.maxPayloadBytes'],
      maxPerTenant: this.host.config['server.tenantSchedules'],
    });
  }
}
