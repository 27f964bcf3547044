import type { Host, RunningApp } from '../../host/app.ts';
import type { PassportsConfig } from './config.ts';
import { auditHeadsKind, auditHeadsSchedule } from './jobs/audit-heads.ts';
import { passportKinds } from './jobs/index.ts';
import { meansOf } from './means.ts';
import type { PassportsObserver } from './observer.ts';
import { requireProductionKey, ringFor } from './signing/ring.ts';

export async function startPassports(
  host: Host,
  config: PassportsConfig,
  observer: PassportsObserver,
): Promise<RunningApp> {
  const concurrency = config['passports.concurrency'];
  const means = meansOf(config, { keys: ringFor(config, host.secrets), observer });
  await requireProductionKey(means.keys, host.tallyman.database);
  await host.schedule(auditHeadsSchedule(config['passports.auditCron']));
  await host.run({
    concurrency,
    kinds: [...passportKinds(means), auditHeadsKind(host.tallyman.database, means)],
  });
  const key = means.keys.currentId;
  return {
    summary: `${concurrency} jobs at a time, ${key === undefined ? 'no signing key: nothing is signed' : `signs with ${key}`}`,
  };
}
