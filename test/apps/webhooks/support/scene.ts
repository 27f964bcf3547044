import { randomBytes } from 'node:crypto';
import { onTestFinished } from 'vitest';
import { webhooksComponent } from '../../../../src/apps/webhooks/component.ts';
import { type WebhookKindsOptions, webhookKinds } from '../../../../src/apps/webhooks/delivery/kinds.ts';
import type { NewEndpoint } from '../../../../src/apps/webhooks/endpoints.ts';
import { webhookEventTypes } from '../../../../src/apps/webhooks/event-types.ts';
import { webhookFollower } from '../../../../src/apps/webhooks/follower.ts';
import { Webhooks } from '../../../../src/apps/webhooks/webhooks.ts';
import type { Worker } from '../../../../src/engine/jobs/worker.ts';
import type { WorkerOptions } from '../../../../src/engine/jobs/worker-options.ts';
import { EventCatalogue } from '../../../../src/events/catalogue.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { Events } from '../../../../src/events/events.ts';
import { SecretBox } from '../../../../src/secrets/box.ts';
import { type Bundle, engine, until } from '../../../support/engine.ts';

/** Receivers of a test are on this machine and speak http. */
export const local = { allowPrivate: ['127.0.0.0/8'], requireHttps: false } as const;

export interface WebhookScene extends Bundle {
  readonly box: SecretBox;
  readonly master: string;
  readonly webhooks: Webhooks;
  readonly events: Events;
  /** A worker that delivers, and a follower; stopped when the test ends. */
  deliver(
    options?: Partial<WebhookKindsOptions> & { readonly worker?: Partial<WorkerOptions> },
  ): Promise<Worker>;
  /** An endpoint with short delays. */
  endpoint(settings: NewEndpoint): Promise<{ id: string; secret: string }>;
  /** Answers the event's id when its deliveries are made. */
  emit(type: string, aggregateId?: string, payload?: unknown): Promise<string>;
  /** Makes the deliveries of all events that are there. */
  fanOut(): Promise<void>;
}

export async function webhookScene(): Promise<WebhookScene> {
  const bundle = await engine({ components: [eventsComponent, webhooksComponent] });
  const { database } = bundle.tallyman;
  const master = randomBytes(32);
  const box = new SecretBox(master);
  const webhooks = new Webhooks(database, { box, policy: local });
  const events = new Events(database, { catalogue: new EventCatalogue(webhookEventTypes) });
  const follower = webhookFollower(database, { pollMs: 50 });
  onTestFinished(() => follower.stop());
  // The follower of `deliver` may be at it, too.
  const fanOut = () =>
    until('deliveries are made', async () => {
      await follower.turn();
      const [found] = await bundle.rows<{ news: boolean }>(
        `select tallyman_events.has_news('webhooks') as news`,
      );
      return found?.news === false;
    });
  return {
    ...bundle,
    box,
    master: master.toString('base64'),
    webhooks,
    events,
    fanOut,
    deliver: ({ worker, ...options } = {}) => {
      follower.start();
      return bundle.work({
        kinds: webhookKinds({ database, box, policy: local, ...options }),
        concurrency: 10,
        ...worker,
      });
    },
    endpoint: async (settings) => {
      const { endpoint, secret } = await webhooks.add({ retryDelays: [1], maxAttempts: 5, ...settings });
      return { id: endpoint.id, secret };
    },
    emit: async (type, aggregateId = 'A-1', payload = { n: 1 }) => {
      const { eventId } = await events.emit({ type, aggregateType: 'thing', aggregateId, payload });
      await fanOut();
      return eventId;
    },
  };
}

/** Makes what waits for a retry due at once, so that a test of five attempts does not take their time. */
export async function hurry({ rows }: Bundle): Promise<void> {
  await rows(
    `update tallyman.jobs set scheduled_at = now() where scheduled_at > now() and lane is null and pos is null`,
  );
}
