import { setTimeout as sleep } from 'node:timers/promises';
import type { TenantDatabase } from '../../../engine/database/tenant.ts';
import {
  LeaseLostError,
  messageOf,
  PermanentError,
  RetryLater,
  TallymanError,
} from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import type { Logger } from '../../../engine/logger.ts';
import { withWorkOutside } from '../../../engine/outside-transaction.ts';
import { exponentialMs } from '../../../engine/resilience/backoff.ts';
import { type LabelTask, type PageSnapshot, readDesigns } from '../changes/tasks.ts';
import { images } from '../images.ts';
import { resyncLabels } from '../labels.ts';
import { type LabelImage, TemplateError } from '../render/index.ts';
import type { Gateways, StoreGateway } from './gateways.ts';
import type { LabelObserver } from './observer.ts';
import {
  type Accepted,
  forgetAccepted,
  loadTarget,
  type PageProgress,
  type PushTarget,
  saveAccepted,
  saveFailed,
} from './page-store.ts';
import { PushShares } from './push-shares.ts';
import { StoreGate } from './store-gate.ts';

export interface PusherOptions {
  readonly logger: Logger;
  readonly gateways: Gateways;
  readonly observer: LabelObserver;
  /** When to ask for the first time whether a label shows the pushed image. */
  readonly askAfterMs: number;
  /** Tasks that the worker runs at once. */
  readonly slots: number;
}

const mostDesigns = 500;
/** How often pages are tried that another transaction has locked, and how long in between: ten seconds in all. */
const mostTries = 25;
const lockedPages = { minMs: 10, maxMs: 500 };
/** How long a task waits if too many images of its tenant wait already. */
const busyMs = 2000;

/**
 * Runs one task for a label: renders, pushes what the gateway does not have, and records that in the commit that completes
 * the task.
 *
 * The gateway is outside of that commit. A worker that dies between the two pushes the same image again. A worker that was
 * paused for longer than its lease may push an old image after another worker pushed a new one. The fence refuses its
 * result, and it requests another push for the label, because no other process knows.
 *
 * The tenant of the job decides which label, gateway and template it finds: a task that names those of another tenant
 * finds nothing.
 */
export class Pusher {
  readonly #options: PusherOptions;
  readonly #gate = new StoreGate();
  readonly #shares: PushShares;
  /** By tenant and version. Template versions never change. */
  readonly #designs = new Map<string, string>();

  constructor(options: PusherOptions) {
    this.#options = options;
    this.#shares = new PushShares(options.slots);
  }

  async run(task: LabelTask, context: JobContext): Promise<void> {
    const { tenantId } = context;
    const began = performance.now();
    const waitMs = this.#shares.take(tenantId, began);
    if (waitMs > 0)
      throw new RetryLater(waitMs, 'put off: the tenant has its share of the pushes under way', {
        isFree: true,
      });
    try {
      await this.#run(task, context);
    } finally {
      this.#shares.give(tenantId, performance.now() - began);
    }
  }

  async #run(task: LabelTask, context: JobContext): Promise<void> {
    const { askAfterMs, observer } = this.#options;
    const { tenant } = context;
    const target = await loadTarget(tenant, task.label);
    if (!target) return;
    const accepted: Accepted[] = [];
    try {
      for (const page of task.pages) {
        const before = target.pages.get(page.page);
        // A redriven dead letter keeps its id: if a later task was accepted, its image stays.
        if (!before || isAtLeast(before.acceptedJob, context.id)) continue;
        accepted.push(await this.#page({ task, page, before, target }, context));
      }
      if (accepted.length === 0) return;
      await context.commit((tx) =>
        saveAccepted(tx, { label: task.label, job: context.id }, accepted, askAfterMs),
      );
    } catch (error) {
      if (isLeaseLost(error, context)) await this.#pushAgain(task, context);
      // Other pages of the task may be at the gateway, and nothing has recorded that.
      else
        for (const { page, pushed } of accepted) if (pushed) await forgetAccepted(tenant, task.label, page);
      throw error;
    }
    for (const { pushed } of accepted) if (!pushed) observer.unchanged();
  }

  async #page(
    work: {
      readonly task: LabelTask;
      readonly page: PageSnapshot;
      readonly before: PageProgress;
      readonly target: PushTarget;
    },
    context: JobContext,
  ): Promise<Accepted> {
    const { task, page, before, target } = work;
    const image = await this.#render(task, page, context).catch((error) =>
      this.#giveUp(task, context, error),
    );
    const { hash } = image;
    const mustPush = before.resyncJob !== null && !isAtLeast(before.acceptedJob, before.resyncJob);
    if (hash === before.acceptedHash && !mustPush) return { page: page.page, hash, pushed: false };
    this.#passGate(target.store, task.label);
    try {
      const gateway = this.#options.gateways.of(target.store);
      await gateway.push({ mac: target.mac, page: page.page, image }, context.signal);
      this.#gate.answered(target.store.storeId);
    } catch (error) {
      this.#tellGate(target.store.storeId, task.label, error, context);
      await forgetAccepted(context.tenant, task.label, page.page);
      return this.#giveUp(task, context, error);
    }
    this.#options.observer.pushed('accepted');
    return { page: page.page, hash, pushed: true };
  }

  /** Postpones the task without an attempt if the store's gateway cannot be reached. */
  #passGate({ storeId, code }: StoreGateway, label: string): void {
    const waitMs = this.#gate.waitMs(storeId, label, performance.now());
    if (waitMs === 0) return;
    throw new RetryLater(waitMs, `put off: the gateway of store "${code}" cannot be reached`, {
      isFree: true,
    });
  }

  #tellGate(storeId: string, label: string, error: unknown, context: JobContext): void {
    if (isLeaseLost(error, context)) this.#gate.brokenOff(storeId);
    else if (error instanceof PermanentError) this.#gate.answered(storeId);
    else this.#gate.failed(storeId, label, performance.now());
  }

  async #render(
    task: LabelTask,
    { template, values }: PageSnapshot,
    { tenant }: JobContext,
  ): Promise<LabelImage> {
    const svg = template === null ? null : await this.#design(tenant, template);
    try {
      return await images.render(tenant.tenantId, { svg, values, panel: task.panel });
    } catch (error) {
      if (error instanceof TallymanError && error.code === 'LABELS_BUSY')
        throw new RetryLater(busyMs, error.message, { isFree: true });
      if (!(error instanceof TemplateError)) throw error;
      throw new PermanentError(error.code, error.message, { cause: error });
    }
  }

  async #design(tenant: TenantDatabase, version: string): Promise<string> {
    const key = `${tenant.tenantId}\n${version}`;
    const known = this.#designs.get(key);
    if (known !== undefined) return known;
    const svg = (await readDesigns({ tx: tenant }, [version])).get(version);
    if (svg === undefined)
      throw new PermanentError('LABEL_TEMPLATE', 'the template of this task has been removed');
    if (this.#designs.size >= mostDesigns) this.#designs.clear();
    this.#designs.set(key, svg);
    return svg;
  }

  /** Records what the engine is about to decide: no more attempts. */
  async #giveUp(task: LabelTask, context: JobContext, error: unknown): Promise<never> {
    if (isLeaseLost(error, context)) throw error;
    const isLast = error instanceof PermanentError || context.attempt >= context.maxAttempts;
    this.#options.observer.pushed(isLast ? 'failed' : 'retried');
    if (isLast) await this.#recordFailure(task, context, messageOf(error));
    throw error;
  }

  /**
   * Again while another transaction has the pages: one that only looks for due pages would otherwise cost the label its
   * state. A change raises `wanted_job`, and then there is nothing to record.
   */
  async #recordFailure(task: LabelTask, { id: job, tenant, signal }: JobContext, why: string): Promise<void> {
    let pages: readonly number[] = task.pages.map(({ page }) => page);
    for (let tries = 0; tries < mostTries; tries += 1) {
      pages = await tenant.transaction((tx) => saveFailed(tx, { label: task.label, job, pages }, why));
      if (pages.length === 0 || signal.aborted) return;
      await sleep(exponentialMs(tries, lockedPages));
    }
  }

  /** What this worker pushed, or was pushing, may reach the gateway after another worker's newer push. */
  async #pushAgain(task: LabelTask, context: JobContext): Promise<void> {
    const { tenantId, tenant, correlationId } = context;
    try {
      await withWorkOutside(() =>
        tenant.transaction((tx) =>
          resyncLabels({ tx, tenantId, correlationId, drawsOutside: true }, [task.label]),
        ),
      );
    } catch (error) {
      this.#options.logger.warn(
        { mac: task.mac, error: messageOf(error) },
        'a push that came too late may have put an old image on a label; the drift check will find it',
      );
    }
  }
}

const isAtLeast = (job: string | null, other: string): boolean =>
  job !== null && BigInt(job) >= BigInt(other);

const isLeaseLost = (error: unknown, { signal }: JobContext): boolean =>
  error instanceof LeaseLostError || signal.reason instanceof LeaseLostError;
