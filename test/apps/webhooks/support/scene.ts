import { randomBytes } from 'node:crypto';
import { webhooksComponent } from '../../../../src/apps/webhooks/component.ts';
import { type WebhookKindsOptions, webhookKinds } from '../../../../src/apps/webhooks/delivery/kinds.ts';
import type { NewEndpoint } from '../../../../src/apps/webhooks/endpoints.ts';
import { Webhooks } from '../../../../src/apps/webhooks/webhooks.ts';
import { engineComponent, migrate } from '../../../../src/engine/database/migrate.ts';
import type { Worker } from '../../../../src/engine/jobs/worker.ts';
import type { WorkerOptions } from '../../../../src/engine/jobs/worker-options.ts';
import { SecretBox } from '../../../../src/secrets/box.ts';
import { type Bundle, engine } from '../../../support/engine.ts';

/** Receivers of a test are on this machine and speak http. */
export const local = { allowPrivate: ['127.0.0.0/8'], requireHttps: false } as const;

export interface WebhookScene extends Bundle {
  readonly box: SecretBox;
  readonly master: string;
  readonly webhooks: Webhooks;
  /** A worker that delivers; stopped when the test ends. */
  deliver(
    options?: Partial<WebhookKindsOptions> & { readonly worker?: Partial<WorkerOptions> },
  ): Promise<Worker>;
  /** An endpoint with short delays. */
  endpoint(settings: NewEndpoint): Promise<{ id: string; secret: string }>;
  emit(type: string, aggregateId?: string, payload?: unknown): Promise<string>;
}

export async function webhookScene(): Promise<WebhookScene> {
  const bundle = await engine();
  const { database } = bundle.tallyman;
  await migrate(database, { components: [engineComponent, webhooksComponent] });
  const master = randomBytes(32);
  const box = new SecretBox(master);
  const webhooks = new Webhooks(database, { box, policy: local });
  return {
    ...bundle,
    box,
    master: master.toString('base64'),
    webhooks,
    deliver: ({ worker, ...options } = {}) =>
      bundle.work({
        kinds: webhookKinds({ database, box, policy: local, ...options }),
        concurrency: 10,
        ...worker,
      }),
    endpoint: async (settings) => {
      const { endpoint, secret } = await webhooks.add({ retryDelays: [1], maxAttempts: 5, ...settings });
      return { id: endpoint.id, secret };
    },
    emit: async (type, aggregateId = 'A-1', payload = { n: 1 }) =>
      (await webhooks.emit({ type, aggregateType: 'thing', aggregateId, payload })).eventId,
  };
}

/** Makes what waits for a retry due at once, so that a test of five attempts does not take their time. */
export async function hurry({ rows }: Bundle): Promise<void> {
  await rows(
    `update tallyman.jobs set scheduled_at = now() where scheduled_at > now() and lane is null and pos is null`,
  );
}
