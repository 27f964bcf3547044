import { TallymanError } from '../../engine/errors.ts';
import type { Enqueued } from '../../engine/jobs/enqueue.ts';
import { RegisteredKinds } from '../../engine/jobs/registered-kinds.ts';
import { checkedPayload, type NewEvent } from '../../events/emit.ts';
import type { JobRequest } from '../../host/route.ts';
import type { ServerDependencies } from '../../host/services.ts';
import type { AuditEvent } from '../access/audit.ts';
import type { RecentTenants } from '../access/recent-tenants.ts';
import { type Answer, conflict, openAnswer } from '../http/idempotency.ts';
import { prepareJobs } from './prepare.ts';
import { SharedCommits } from './shared-commits.ts';
import { limitsOf, type TenantLimits } from './tenant-limits.ts';

export interface IncomingRequest {
  readonly jobs: readonly JobRequest[];
  /** An event instead of jobs. */
  readonly emits?: NewEvent | undefined;
  readonly correlationId: string;
  /** Called when it needs the processor no more and waits for its commit. */
  readonly prepared?: () => void;
  /** The audit line that it gets when it is done. */
  readonly event: AuditEvent;
  readonly idempotency?: { readonly key: string; readonly digest: Buffer } | undefined;
  /** The answer to the caller. */
  readonly answer: (enqueued: readonly Enqueued[]) => unknown;
}

/** Kinds change when a new version of a worker starts; a request that meets this more often is not served. */
const mostPreparations = 5;

/** Takes requests that do nothing but enqueue, or emit an event, and answers each after its commit. */
export class EnqueueRequests {
  readonly #host: ServerDependencies;
  readonly #recent: RecentTenants;
  readonly #kinds: RegisteredKinds;
  readonly #commits: SharedCommits;
  readonly #limits: TenantLimits;

  constructor(host: ServerDependencies, recent: RecentTenants) {
    const { tallyman } = host;
    this.#host = host;
    this.#recent = recent;
    this.#kinds = new RegisteredKinds(tallyman.database);
    this.#limits = limitsOf(host);
    this.#commits = new SharedCommits(tallyman.database, {
      recent,
      waiting: host.config['server.tenantWaiting'],
      largePercent: host.config['server.largeRequestsPercent'],
      committed: (hints) => tallyman.hint(hints),
    });
  }

  async handle(request: IncomingRequest): Promise<Answer & { readonly replayed: boolean }> {
    const { event, idempotency, emits } = request;
    const { tenantId, status } = event;
    if (emits) this.#host.catalogue.requireFree(emits.type);
    const emitted = emits && { ...emits, payload: checkedPayload(emits) };
    for (let i = 0; i < mostPreparations; i += 1) {
      const prepared = await prepareJobs(request.jobs, {
        tenantId,
        correlationId: request.correlationId,
        maxPayloadBytes: this.#host.config['jobs.maxPayloadBytes'],
        known: this.#host.kinds,
        registered: this.#kinds,
        recent: this.#recent,
      });
      await this.#limits.admit(tenantId, prepared.jobs);
      request.prepared?.();
      const settled = await this.#commits.add({
        ...prepared,
        emitted,
        tenantId,
        event,
        key: idempotency?.key,
        digest: idempotency?.digest,
      });
      if (settled.type === 'done') return { status, body: request.answer(settled.enqueued), replayed: false };
      if (settled.type === 'taken') {
        const { key, digest } = idempotency as { key: string; digest: Buffer };
        if (!settled.digest.equals(digest)) throw conflict();
        const body =
          typeof settled.kept === 'string'
            ? openAnswer(this.#host.secrets, { tenantId, key }, settled.kept)
            : request.answer(settled.kept);
        return { status: settled.status, body, replayed: true };
      }
      await Promise.all([...prepared.kinds.keys()].map((name) => this.#kinds.read(name)));
    }
    throw new TallymanError(
      'KIND_CHANGING',
      'the kinds of these jobs keep changing while they are enqueued; nothing was written, try again',
    );
  }

  close(): Promise<void> {
    return this.#commits.close();
  }
}
