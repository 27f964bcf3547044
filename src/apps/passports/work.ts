import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { TenantScope } from '../../engine/database/tenant.ts';
import type { JobContext } from '../../engine/jobs/context.ts';
import type { Enqueued } from '../../engine/jobs/enqueue.ts';
import type { Kind } from '../../engine/jobs/kind.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import type { TenantQueries } from '../../host/timeline.ts';

/** Ids and salts of new rows. A test that compares two runs byte by byte gives its own. */
export interface Fresh {
  /** A UUID in small letters. `seed` names what it is for. */
  id(seed: string): string;
  /** 32 secret bytes as hex. */
  salt(seed: string): string;
}

export const randomFresh: Fresh = {
  id: () => randomUUID(),
  salt: () => randomBytes(32).toString('hex'),
};

/** The same seed gives the same id and salt. Not secret: for tests and reproducible samples alone. */
export const seededFresh = (secret: string): Fresh => {
  const digest = (seed: string): string => createHash('sha256').update(`${secret}|${seed}`).digest('hex');
  return {
    id: (seed) => {
      const hex = digest(`id|${seed}`);
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
    },
    salt: (seed) => digest(`salt|${seed}`),
  };
};

/** One transaction in one tenant that can also enqueue: everything that this app writes takes it. */
export interface Work {
  readonly on: TenantQueries;
  readonly fresh: Fresh;
  /** In the same transaction. */
  enqueue<Payload>(kind: Kind<Payload>, payload: NoInfer<Payload>): Promise<Enqueued>;
}

/** For routes and commands. `scope` is a transaction of the tenant. */
export const workIn = (tallyman: Tallyman, scope: TenantScope, fresh: Fresh = randomFresh): Work => ({
  on: scope,
  fresh,
  enqueue: (kind, payload) => tallyman.enqueue(kind, payload, { tx: scope, tenantId: scope.tenantId }),
});

/** For handlers: effects, successor and completion in one commit. */
export const commitWork = <T>(
  context: JobContext,
  fresh: Fresh,
  work: (work: Work) => Promise<T>,
): Promise<T> =>
  context.commit((tx) =>
    work({
      on: { tenantId: context.tenantId, query: (text, values) => tx.query(text, values) },
      fresh,
      enqueue: (kind, payload) => context.enqueue(kind, payload, { tx }),
    }),
  );
