import type { Host, RunningApp } from '../../host/app.ts';
import type { WebhooksConfig } from './config.ts';
import { addressPolicy, deliveriesPerEndpoint } from './configured.ts';
import { webhookKinds } from './delivery/kinds.ts';
import { purgeSchedule } from './delivery/purge.ts';

export async function startWebhooks(host: Host, config: WebhooksConfig): Promise<RunningApp> {
  const concurrency = config['webhooks.concurrency'];
  const kinds = webhookKinds({
    database: host.tallyman.database,
    box: host.secrets,
    policy: addressPolicy(config),
    perEndpoint: deliveriesPerEndpoint(config),
  });
  await host.schedule(purgeSchedule);
  await host.run({ kinds, concurrency });
  return { summary: `deliveries, ${concurrency} at a time` };
}
