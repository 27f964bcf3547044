import { purgeEventsKind, purgeEventsSchedule } from '../../events/purge.ts';
import type { Host, RunningApp } from '../../host/app.ts';
import type { WebhooksConfig } from './config.ts';
import { addressPolicy, deliveriesPerEndpoint } from './configured.ts';
import { webhookKinds } from './delivery/kinds.ts';
import { webhookFollower } from './follower.ts';
import type { EventObserver } from './metrics.ts';
import { redeliverKind } from './redelivery-kind.ts';
import { EventWatch } from './watch.ts';

export async function startWebhooks(
  host: Host,
  config: WebhooksConfig,
  observer: EventObserver,
): Promise<RunningApp> {
  const concurrency = config['webhooks.concurrency'];
  const kinds = webhookKinds({
    database: host.tallyman.database,
    box: host.secrets,
    policy: addressPolicy(config),
    perEndpoint: deliveriesPerEndpoint(config),
    slots: concurrency,
  });
  await host.schedule(purgeEventsSchedule);
  await host.run({ kinds: [...kinds, redeliverKind, purgeEventsKind(host.tallyman.database)], concurrency });
  const follower = webhookFollower(host.tallyman.database);
  host.onStop(() => follower.stop());
  follower.start();
  const watch = new EventWatch({ database: host.tallyman.database, observer });
  host.onStop(() => watch.stop());
  watch.start();
  return { summary: `deliveries, ${concurrency} at a time` };
}
