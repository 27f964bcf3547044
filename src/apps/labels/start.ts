import type { Host, RunningApp } from '../../host/app.ts';
import type { LabelsConfig } from './config.ts';
import { gatewayPolicies } from './gateways/index.ts';
import { Gateways } from './worker/gateways.ts';
import { driftSchedule, labelKinds } from './worker/kinds.ts';
import type { LabelObserver } from './worker/observer.ts';
import { StatusLoop } from './worker/status-loop.ts';

export async function startLabels(
  host: Host,
  config: LabelsConfig,
  observer: LabelObserver,
): Promise<RunningApp> {
  const concurrency = config['labels.concurrency'];
  const policyOf = gatewayPolicies(config);
  const gateways = new Gateways(host.secrets, {
    guardOf: (tenantId) => ({ policy: policyOf(tenantId) }),
  });
  host.onStop(() => gateways.close());
  const means = { database: host.tallyman.database, gateways, observer };
  await host.schedule(driftSchedule(config['labels.driftCron']));
  const kinds = labelKinds({ ...means, askAfterMs: config['labels.askAfterMs'], slots: concurrency });
  await host.run({ concurrency, kinds });
  const status = new StatusLoop({ ...means, intervalMs: config['labels.askIntervalMs'] });
  host.onStop(() => status.stop());
  status.start();
  return { summary: `images, ${concurrency} labels at a time` };
}
