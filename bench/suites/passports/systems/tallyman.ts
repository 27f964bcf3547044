import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { verifyAudit } from '../../../../src/apps/passports/audit/verify.ts';
import { passportsComponent } from '../../../../src/apps/passports/component.ts';
import { passportKinds } from '../../../../src/apps/passports/jobs/index.ts';
import { replayVersion } from '../../../../src/apps/passports/replay.ts';
import { listVersions, requireRulePackageNamed } from '../../../../src/apps/passports/store/index.ts';
import { type Work, workIn } from '../../../../src/apps/passports/work.ts';
import { uploadDocument } from '../../../../src/apps/passports/write/documents.ts';
import { newIssue, requestItems } from '../../../../src/apps/passports/write/issue.ts';
import { addItems } from '../../../../src/apps/passports/write/passports.ts';
import { putProduct } from '../../../../src/apps/passports/write/products.ts';
import { publishRulePackage, putRulePackage } from '../../../../src/apps/passports/write/rules.ts';
import { requestVersions } from '../../../../src/apps/passports/write/versions.ts';
import { prepareTenants, TenantDatabase } from '../../../../src/engine/database/tenant.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { Tallyman } from '../../../../src/index.ts';
import { endWithUs } from '../../../lib/processes.ts';
import { benchMeans, documentsOf, issuedAt, itemsOf, product, rulePackage } from '../battery.ts';
import type { System } from './system.ts';

const tenantId = 'default';
/** Items are registered in such bites before the clock starts. */
const BITE = 1000;

/** Workers in processes of their own, as a host has one `serve` for each processor; history is not kept. */
export const tallymanWith = (processes: number): System => ({
  async open({ url, versions, factor, isFull }) {
    const engine = await Tallyman.open({
      databaseUrl: url,
      migrate: true,
      components: [eventsComponent, passportsComponent],
      retention: { keepMs: 0 },
    });
    await prepareTenants(engine.database);
    const means = benchMeans();
    const on = new TenantDatabase(engine.database, tenantId);
    const change = <T>(work: (work: Work) => Promise<T>): Promise<T> =>
      on.transaction((scope) => work(workIn(engine, scope, means.fresh)));
    await change(async (work) => {
      await putProduct(work, product);
      const rulesId = await putRulePackage(work, rulePackage);
      await publishRulePackage(work, rulesId, means.build);
      for (const { name, input } of documentsOf(factor))
        await uploadDocument(work, {
          productId: product.id,
          name,
          ...input,
          next: newIssue(means, { rulesId, issuedAt }),
        });
    });
    const modelIsThere = engine.worker({ kinds: passportKinds(means) });
    await modelIsThere.start();
    while (await isBusy(engine)) await sleep(20);
    await modelIsThere.stop();
    const items = itemsOf(versions);
    for (let at = 0; at < items.length; at += BITE)
      await change((work) => addItems(work, product.id, items.slice(at, at + BITE)));
    const [model] = (await listVersions(on, { state: 'ACTIVE' })).items;
    if (!model) throw new Error('the model has no active version');
    const { id: rulesId } = await requireRulePackageNamed(on, rulePackage.id);
    const issue = newIssue(means, { rulesId, issuedAt });
    const workers = await Promise.all(Array.from({ length: processes }, () => startWorker(url)));
    await engine.database.query('vacuum analyze');
    await engine.database.query('checkpoint');
    return {
      async run() {
        if (isFull)
          await change(async (work) => {
            const { rows } = await work.on.query<{ id: string; serial: string }>(
              'select p.id, p.serial from passports.passports p where p.serial is not null order by p.id',
            );
            const item = new Map(items.map((each) => [each.serial, each]));
            await requestVersions(
              work,
              { ...issue, product, snapshotId: model.snapshotId, modelVersionId: null },
              rows.map(({ id, serial }) => ({ passportId: id, item: item.get(serial) ?? null })),
            );
          });
        else await change((work) => requestItems(work, model.id, issue));
        while (await isBusy(engine)) await sleep(20);
        return (await Promise.all(workers.map(processorTime))).reduce((sum, each) => sum + each, 0);
      },
      async verify() {
        const { rows } = await engine.database.query<{ active: number; events: number }>(
          `select (select count(*)::int from passports.versions where state = 'ACTIVE') as active,
                  (select count(*)::int from tallyman_events.events where event_type = 'passport.version.active') as events`,
        );
        const [found] = rows;
        if (found?.active !== versions + 1 || found.events !== versions + 1)
          throw new Error(`${found?.active} active versions and ${found?.events} events of ${versions + 1}`);
        const { broken } = await verifyAudit(on, means.keys);
        if (broken) throw new Error(`${broken.at}: ${broken.message}`);
        for (const { id } of (await listVersions(on, {}, { limit: 5 })).items)
          await replayVersion(on, id, means);
      },
      async close() {
        const ended = workers.map((worker) => once(worker, 'exit'));
        for (const worker of workers) worker.disconnect();
        await Promise.all(ended);
        await engine.close();
      },
    };
  },
});

const isBusy = async ({ database }: Tallyman): Promise<boolean> =>
  (await database.query('select 1 from tallyman.jobs limit 1')).rows.length > 0;

async function startWorker(url: string): Promise<ChildProcess> {
  const child = fork(join(import.meta.dirname, '..', 'worker.ts'), [url], { stdio: ['ignore', 2, 2, 'ipc'] });
  endWithUs(child);
  await once(child, 'message');
  return child;
}

async function processorTime(child: ChildProcess): Promise<number> {
  const answer = once(child, 'message') as Promise<[number]>;
  child.send('time');
  return (await answer)[0];
}
