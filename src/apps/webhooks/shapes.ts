import { z } from 'zod';
import { id, recordOf, text, timestamp } from '../../host/route.ts';
import type { DeliveryAttempt } from './attempts.ts';
import { type Delivery, deliveryStates } from './deliveries.ts';
import type { Endpoint } from './endpoints.ts';
import { filterLimits } from './filter.ts';
import { headerLimits } from './headers.ts';

const filterValue = z.union([z.string(), z.number(), z.boolean(), z.null()]);

/** What fits together is checked by filter.ts, with messages of its own. */
const condition = z.strictObject({
  path: z
    .union([text(2048), z.array(text(512)).max(filterLimits.depth)])
    .describe('`to.zone`, or a list of keys'),
  equals: filterValue.optional(),
  in: z.array(filterValue).max(filterLimits.values).optional(),
  prefix: z.string().optional(),
  gt: z.number().optional(),
  gte: z.number().optional(),
  lt: z.number().optional(),
  lte: z.number().optional(),
  exists: z.boolean().optional(),
});

/** The settings of an endpoint that requests may give. */
export const optionShapes = {
  filter: z
    .array(condition)
    .max(filterLimits.conditions)
    .nullable()
    .optional()
    .describe('Conditions on the payload, all of which must hold'),
  headers: recordOf(headerLimits.count, z.string(), z.string())
    .nullable()
    .optional()
    .describe('Sent with every delivery; values are not shown again'),
  ed25519: z.boolean().optional().describe('Sign with Ed25519 (`v1a`), too'),
};

export const endpointShape = z.object({
  id,
  url: z.string(),
  description: z.string(),
  event_types: z.array(z.string()),
  ordered: z.boolean(),
  timeout_ms: z.number(),
  max_attempts: z.number(),
  retry_delays_s: z.array(z.number()).nullable(),
  disabled_at: z.string().nullable(),
  disabled_reason: z.string().nullable(),
  disabled_by: z.enum(['person', 'receiver']).nullable(),
  filter: z.array(condition),
  header_names: z.array(z.string()),
  created_at: z.string(),
  failures: z.number(),
  open_until: z.string().nullable(),
  secrets: z.array(
    z.object({
      created_at: z.string(),
      expires_at: z.string().nullable(),
      x_bpc_key: z.enum(['text', 'decoded']).describe('What X-BPC-Signature is made with'),
    }),
  ),
  public_keys: z.array(
    z.object({ public_key: z.string(), created_at: z.string(), expires_at: z.string().nullable() }),
  ),
});

export const endpointJson = (endpoint: Endpoint) => ({
  id: endpoint.id,
  url: endpoint.url,
  description: endpoint.description,
  event_types: endpoint.eventTypes,
  ordered: endpoint.ordered,
  timeout_ms: endpoint.timeoutMs,
  max_attempts: endpoint.maxAttempts,
  retry_delays_s: endpoint.retryDelays,
  disabled_at: endpoint.disabledAt,
  disabled_reason: endpoint.disabledReason,
  disabled_by: endpoint.disabledBy,
  filter: endpoint.filter,
  header_names: endpoint.headerNames,
  created_at: endpoint.createdAt,
  failures: endpoint.failures,
  open_until: endpoint.openUntil,
  secrets: endpoint.secrets.map(({ createdAt, expiresAt, xBpcKey }) => ({
    created_at: createdAt,
    expires_at: expiresAt,
    x_bpc_key: xBpcKey,
  })),
  public_keys: endpoint.publicKeys.map(({ publicKey, createdAt, expiresAt }) => ({
    public_key: publicKey,
    created_at: createdAt,
    expires_at: expiresAt,
  })),
});

export const attemptShape = z.object({
  id,
  delivery_id: z.string(),
  event_id: z.string(),
  event_type: z.string(),
  endpoint_id: id,
  attempt: z.number(),
  status: z.enum(['SUCCEEDED', 'FAILED']),
  http_status: z.number().nullable(),
  response_headers: z.record(z.string(), z.unknown()).nullable(),
  response_body: z.string().nullable(),
  error_code: z.string().nullable(),
  error: z.string().nullable(),
  duration_ms: z.number(),
  attempted_at: z.string(),
});

export const attemptJson = (attempt: DeliveryAttempt) => ({
  id: attempt.id,
  delivery_id: attempt.deliveryId,
  event_id: attempt.eventId,
  event_type: attempt.eventType,
  endpoint_id: attempt.endpointId,
  attempt: attempt.attempt,
  status: attempt.status,
  http_status: attempt.httpStatus,
  response_headers: attempt.responseHeaders,
  response_body: attempt.responseBody,
  error_code: attempt.errorCode,
  error: attempt.error,
  duration_ms: attempt.durationMs,
  attempted_at: attempt.attemptedAt,
});

export const deliveryShape = z.object({
  id: z.string(),
  state: z.enum(deliveryStates),
  event_id: z.string(),
  event_type: z.string(),
  endpoint_id: id,
  job_id: id,
  manual: z.boolean(),
  created_at: z.string(),
  succeeded_at: z.string().nullable(),
  attempts: z.number(),
  last_attempt_at: z.string().nullable(),
  last_http_status: z.number().nullable(),
  last_error: z.string().nullable(),
  next_attempt_at: z.string().nullable().describe('While PENDING; in the past: it is due, or under way'),
});

export const deliveryJson = (delivery: Delivery) => ({
  id: delivery.id,
  state: delivery.state,
  event_id: delivery.eventId,
  event_type: delivery.eventType,
  endpoint_id: delivery.endpointId,
  job_id: delivery.jobId,
  manual: delivery.manual,
  created_at: delivery.createdAt,
  succeeded_at: delivery.succeededAt,
  attempts: delivery.attempts,
  last_attempt_at: delivery.lastAttemptAt,
  last_http_status: delivery.lastHttpStatus,
  last_error: delivery.lastError,
  next_attempt_at: delivery.nextAttemptAt,
});

export const deliveryQuery = {
  endpoint_id: id.optional(),
  state: z.enum(deliveryStates).optional(),
  event_id: text(128).optional(),
  event_type: text(128).optional(),
  from: timestamp.optional().describe('Deliveries that were made from here on'),
  to: timestamp.optional().describe('Before this time'),
};

export const sent = z.object({ delivery_id: z.string(), event_id: z.string() });
export const sentJson = ({ deliveryId, eventId }: { deliveryId: string; eventId: string }) => ({
  delivery_id: deliveryId,
  event_id: eventId,
});
