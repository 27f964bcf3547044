import { z } from 'zod';
import type { Database } from '../../../engine/database/database.ts';
import { GiveUpError, PermanentError, RetryLater } from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import { type AnyKind, defineKind } from '../../../engine/jobs/kind.ts';
import { withJitter } from '../../../engine/resilience/backoff.ts';
import { retryAfterMs } from '../../../engine/resilience/http.ts';
import { AddressPolicy, type AddressPolicyOptions } from '../../../network/addresses.ts';
import { guardedAgent } from '../../../network/guarded-agent.ts';
import { type Network, realNetwork } from '../../../network/network.ts';
import type { SecretBox } from '../../../secrets/box.ts';
import { disableEndpoint } from '../disable.ts';
import { saveAttempt } from './attempt.ts';
import { Breaker, type BreakerOptions } from './breaker.ts';
import { type Consignment, type DeliveryJob, endpointDisabled, loadConsignment } from './consignment.ts';
import { type Exchange, exchange } from './exchange.ts';
import { Gate } from './gate.ts';
import { retryAfterLimits, scheduledDelayMs } from './retry.ts';
import { signedHeaders } from './sign.ts';

export interface WebhookKindsOptions {
  readonly database: Database;
  readonly box: SecretBox;
  readonly policy?: AddressPolicyOptions;
  readonly breaker?: BreakerOptions;
  /** The most deliveries that this process runs at once for one endpoint. Make it a small part of the worker's slots. Default 5. */
  readonly perEndpoint?: number;
  /** The worker's slots: its `concurrency`. One tenant then gets only a part of them. Default: no limit for a tenant. */
  readonly slots?: number;
  /** Default: the real one. */
  readonly network?: Network;
}

const deliverKind = 'webhook.deliver';

/** The earliest time after which a delivery that met a full gate or a running probe tries again. */
const soonMs = 1000;
/** How often a delivery to a disabled endpoint looks whether it is enabled; `enable` makes it look at once. */
const pausedMs = 600_000;

const payload = z.object({
  delivery: z.string(),
  event: z.string(),
  endpoint: z.union([z.string(), z.number()]),
});

/**
 * The kinds that deliver webhooks.
 *
 * @example
 * const worker = tallyman.worker({ kinds: webhookKinds({ database: tallyman.database, box }), concurrency: 50 });
 */
export function webhookKinds(options: WebhookKindsOptions): readonly AnyKind[] {
  const courier = new Courier(options);
  return [
    defineKind<DeliveryJob>({
      name: deliverKind,
      schema: payload,
      queue: 'webhooks',
      priority: 3,
      retry: { maxAttempts: 5 },
      scope: 'tenant',
      handler: (job, context) => courier.deliver(job, context),
    }),
  ];
}

/**
 * Runs one delivery: postpones it, delivers it, schedules a retry, or gives it up. It looks up endpoint, event and
 * delivery as the job's tenant: a job that names those of another tenant finds nothing.
 *
 * Success is recorded in the commit that completes the job. If a process dies between the receiver's answer and that
 * commit, the job runs again and delivers under the same ids: at least once, never not at all.
 */
class Courier {
  readonly #box: SecretBox;
  readonly #agent: ReturnType<typeof guardedAgent>;
  readonly #breaker: Breaker;
  readonly #gate: Gate;

  constructor({
    box,
    policy,
    breaker,
    perEndpoint = 5,
    slots,
    network = realNetwork(),
  }: WebhookKindsOptions) {
    this.#box = box;
    this.#agent = guardedAgent(new AddressPolicy(policy), network);
    this.#breaker = new Breaker(breaker);
    this.#gate = new Gate({ perEndpoint, ...(slots !== undefined && { slots }) });
  }

  async deliver(job: DeliveryJob, context: JobContext): Promise<void> {
    const consignment = await loadConsignment(context.tenant, this.#box, job);
    const { endpointId, openMs, isProbed, failures, pausedBecause } = consignment;
    if (pausedBecause !== null) return this.#waitUntilEnabled(context, endpointId, pausedBecause);
    if (openMs !== null && (openMs > 0 || isProbed))
      return this.#putOff(context, endpointId, Math.max(openMs, soonMs), { isFailing: true });
    const leave = await this.#gate.enter(
      { endpoint: endpointId, tenant: context.tenant.tenantId },
      { isSuspect: failures > 0 },
    );
    if (!leave) return this.#putOff(context, endpointId, soonMs, { isFailing: false });
    try {
      const isProbe = openMs !== null && (await this.#breaker.takeProbe(context.tenant, endpointId));
      if (openMs !== null && !isProbe) return this.#putOff(context, endpointId, soonMs, { isFailing: true });
      await this.#attempt(consignment, context, { isProbe, leave });
    } finally {
      leave();
    }
  }

  async #attempt(
    consignment: Consignment,
    context: JobContext,
    { isProbe, leave }: { readonly isProbe: boolean; readonly leave: () => void },
  ): Promise<void> {
    const { url, timeoutMs, endpointId, deliveryId, body } = consignment;
    const sent = await exchange(this.#agent, {
      url,
      body,
      timeoutMs,
      signal: context.signal,
      headers: {
        ...consignment.customHeaders,
        'content-type': 'application/json',
        'user-agent': 'Tallyman-Webhooks/1',
        ...signedHeaders({ ...consignment, sentAt: new Date() }),
      },
    });
    const problem = problemOf(sent);
    // Nothing was sent, and the receiver cannot help it: it does not count against the endpoint.
    if (problem && isLocal(problem)) throw new PermanentError('CANNOT_SEND', problem.message);
    if (!problem) {
      // The receiver has answered. After a failure the next delivery waits until the new breaker state is committed.
      leave();
      await context.commit(async (tx) => {
        await saveAttempt(tx, deliveryId, sent, undefined);
        await this.#breaker.succeeded(tx, endpointId);
      });
      return;
    }
    const isGone = sent.httpStatus === 410;
    await context.tenant.transaction(async (tx) => {
      await saveAttempt(tx, deliveryId, sent, problem);
      await this.#breaker.failed(tx, endpointId, isProbe);
      if (isGone)
        await disableEndpoint(tx, endpointId, {
          by: 'receiver',
          reason: 'the receiver answered 410 Gone',
        });
    });
    this.#gate.dismiss(endpointId);
    if (isGone)
      throw new PermanentError('HTTP_410', `endpoint ${endpointId} answered 410 Gone and was disabled`);
    const delayMs =
      retryAfterMs(sent.headers?.['retry-after'], Date.now(), retryAfterLimits) ??
      scheduledDelayMs(context.attempt, consignment.retryDelays);
    throw new RetryLater(delayMs, `${problem.code}: ${problem.message}`);
  }

  /** Costs no attempt, and ends when the delivery has waited too long. */
  #waitUntilEnabled(context: JobContext, endpointId: string, reason: string): never {
    if (Date.now() - context.createdAt.getTime() > this.#breaker.giveUpMs)
      throw endpointDisabled(endpointId, reason);
    throw new RetryLater(withJitter(pausedMs), `put off: endpoint ${endpointId} is disabled: ${reason}`, {
      isFree: true,
    });
  }

  /** Postpones without an attempt: costs no attempt, but has a time limit. */
  #putOff(
    context: JobContext,
    endpointId: string,
    atLeastMs: number,
    { isFailing }: { readonly isFailing: boolean },
  ): never {
    const why = isFailing ? 'is failing; deliveries wait' : 'or its tenant is busy with other deliveries';
    const message = `put off: endpoint ${endpointId} ${why}`;
    if (Date.now() - context.createdAt.getTime() > this.#breaker.giveUpMs)
      throw new GiveUpError('GIVEN_UP', `${message}, and this one has waited too long`);
    const entrant = { endpoint: endpointId, tenant: context.tenant.tenantId };
    throw new RetryLater(this.#gate.delay(entrant, atLeastMs, { isFailing }), message, { isFree: true });
  }
}

/** The request could not even be written. */
const isLocal = ({ code }: { readonly code: string }): boolean =>
  code === 'UND_ERR_INVALID_ARG' || /^ERR_(?:INVALID|HTTP)_/.test(code);

/** Undefined for a delivered one: a 2xx, in time. */
function problemOf({ error, httpStatus }: Exchange): { code: string; message: string } | undefined {
  if (error) return error;
  if (httpStatus !== null && httpStatus >= 200 && httpStatus < 300) return undefined;
  const isRedirect = httpStatus !== null && httpStatus >= 300 && httpStatus < 400;
  return {
    code: `HTTP_${httpStatus}`,
    message: isRedirect
      ? `the receiver redirects (${httpStatus}); webhooks go only where they were set up to go`
      : `the receiver answered ${httpStatus}`,
  };
}
