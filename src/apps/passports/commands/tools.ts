import type { Command } from 'commander';
import { prepareTenants, TenantDatabase, type TenantScope } from '../../../engine/database/tenant.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { Jobs } from '../../../engine/jobs/jobs.ts';
import { settingsOf } from '../../../host/app.ts';
import { type JsonOption, withJson } from '../../../host/cli/options.ts';
import { Progress } from '../../../host/cli/output/terminal.ts';
import type { CommandFrame, Session } from '../../../host/cli/session.ts';
import { loadSecretBox } from '../../../host/process/secrets.ts';
import { passportsKeys } from '../config.ts';
import { passportKinds } from '../jobs/index.ts';
import { passportQueue } from '../jobs/kinds.ts';
import { withCodes } from '../jobs/run.ts';
import { type Means, meansOf } from '../means.ts';
import { ringWith } from '../signing/ring.ts';
import { type Work, workIn } from '../work.ts';

export interface TenantOption extends JsonOption {
  readonly tenant: string;
}

/** With `--tenant` and `--json`. */
export const withTenant = (command: Command): Command =>
  withJson(command.option('-t, --tenant <id>', 'of this tenant', 'default'));

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** An id that the database would refuse is told as what it is. */
export function requireUuid(text: string, what: string): string {
  if (uuid.test(text)) return text.toLowerCase();
  throw new TallymanError('NOT_FOUND', `there is no ${what} ${text}: ids are UUIDs`);
}

/** What a command of this app works with. */
export interface Tools extends Session {
  readonly means: Means;
  readonly on: TenantDatabase;
  /** Changes something, all of it or nothing. */
  change<T>(work: (work: Work) => Promise<T>): Promise<T>;
  /** Runs the chain here, beside whichever workers there are, until the tenant has nothing left to do. */
  settle(label: string, done?: () => Promise<{ done: number; total: number } | undefined>): Promise<void>;
}

export const withPassports = (
  { withTallyman }: CommandFrame,
  { tenant }: TenantOption,
  work: (tools: Tools) => Promise<void>,
): Promise<void> =>
  withTallyman(async (session) => {
    const { tallyman } = session;
    const config = settingsOf(passportsKeys, session.config);
    const means = meansOf(config, { keys: await ringWith(config, () => loadSecretBox(session.config)) });
    await prepareTenants(tallyman.database);
    const on = new TenantDatabase(tallyman.database, tenant);
    await withCodes(() =>
      work({
        ...session,
        means,
        on,
        change: (change) => on.transaction((scope) => change(workIn(tallyman, scope, means.fresh))),
        settle: async (label, done) => {
          const worker = tallyman.worker({
            kinds: passportKinds(means),
            concurrency: config['passports.concurrency'],
            pollIntervalMs: 100,
          });
          const progress = new Progress(label);
          await worker.start();
          try {
            while (!(await on.transaction(isIdle))) {
              const state = await done?.();
              progress.show(state?.done ?? 0, state?.total);
              await new Promise((next) => setTimeout(next, 100));
            }
          } finally {
            progress.end();
            await worker.stop();
          }
        },
      }),
    );
  });

/** Both looks see the same moment: a job that ends between them has a successor that waits. */
async function isIdle(scope: TenantScope): Promise<boolean> {
  await scope.query('set transaction isolation level repeatable read');
  const jobs = new Jobs(scope, 0);
  for (const status of ['QUEUED', 'RUNNING'] as const)
    if ((await jobs.list({ queue: passportQueue, status }, { limit: 1 })).items.length > 0) return false;
  return true;
}
