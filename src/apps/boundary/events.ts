/** Events about zones, streams and facts (BND-8, BND-9, BND-10). */
import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';
import type { NewEvent } from '../../events/emit.ts';
import { receivedType } from './domain/event-rules.ts';

const zone = z.string().describe('Slug of a zone');
const stream = { from_zone: zone, to_zone: zone };

const zoneEvent = (step: string, summary: string) =>
  defineEventType({
    type: `boundary.zone.${step}`,
    summary,
    aggregateType: 'zone',
    schema: z.object({ zone, ...stream, trouble: z.string().nullable() }),
  });

const streamEvent = (step: string, summary: string) =>
  defineEventType({
    type: `boundary.stream.${step}`,
    summary,
    aggregateType: 'stream',
    schema: z.object(stream),
  });

export const boundaryEventTypes = [
  zoneEvent('autonomous', 'Another zone cannot be reached: facts gather here until it answers again'),
  zoneEvent('connected', 'Another zone answers again'),
  streamEvent('full', 'A stream reached its limit and refuses facts'),
  streamEvent('accepting', 'A stream that was full takes facts again'),
  streamEvent('stalled', 'The other zone answers and facts wait, but the frontier does not move'),
  streamEvent('recovered', 'A stalled stream moves again; or nothing waits, or the other zone is away'),
  defineEventType({
    type: 'boundary.stream.dropped',
    summary: 'A full stream dropped its oldest facts; those that had not crossed become gap records',
    aggregateType: 'stream',
    schema: z.object({ ...stream, count: z.number().describe('How many facts') }),
  }),
  defineEventType({
    type: 'boundary.fact.quarantined',
    summary: 'The receiver could not take a fact; it is kept in quarantine, and the stream goes on',
    aggregateType: 'fact',
    schema: z.object({
      message_id: z.string(),
      ...stream,
      offset: z.number(),
      buffer: z
        .enum(['store', 'forward'])
        .describe('`store`: told in the zone that sent it; `forward`: in the other'),
      reason: z.string(),
      message: z.string(),
    }),
  }),
  defineEventType({
    type: receivedType,
    summary: 'A fact came in from another zone, and a rule in `boundary.factsAsEvents` names it',
    aggregateType: 'subject',
    schema: z.object({
      message_id: z.string(),
      ...stream,
      offset: z.number(),
      subject: z.string(),
      predicate: z.string(),
      object: z.json(),
      object_omitted: z.boolean().describe('The object would make the event larger than an event may be'),
      object_ref: z.object({ bucket: z.string(), key: z.string(), digest: z.string() }).nullable(),
      labels: z.record(z.string(), z.string()),
      correlation_id: z.string().nullable(),
      causation_id: z.string().nullable(),
      produced_at: z.string().describe('ISO 8601, UTC, by the clock of the producer'),
      accepted_at: z.string().describe('ISO 8601, UTC, by the clock of the node that took it in'),
    }),
  }),
];

interface Stream {
  readonly tenantId: string;
  readonly from: string;
  readonly to: string;
}

export const streamChanged = (
  step: 'full' | 'accepting' | 'stalled' | 'recovered',
  { tenantId, from, to }: Stream,
): NewEvent => ({
  type: `boundary.stream.${step}`,
  aggregateType: 'stream',
  aggregateId: `${from}/${to}`,
  payload: { from_zone: from, to_zone: to },
  tenantId,
});

export const factsDropped = ({ tenantId, from, to }: Stream, count: number): NewEvent => ({
  type: 'boundary.stream.dropped',
  aggregateType: 'stream',
  aggregateId: `${from}/${to}`,
  payload: { from_zone: from, to_zone: to, count },
  tenantId,
});

export const zoneChanged = (
  step: 'autonomous' | 'connected',
  zoneOfPeer: string,
  { tenantId, from, to }: Stream,
  trouble: string | undefined,
): NewEvent => ({
  type: `boundary.zone.${step}`,
  aggregateType: 'zone',
  aggregateId: zoneOfPeer,
  payload: { zone: zoneOfPeer, from_zone: from, to_zone: to, trouble: trouble ?? null },
  tenantId,
});

export const factQuarantined = (
  tenantId: string,
  entry: {
    readonly buffer: string;
    readonly from: string;
    readonly to: string;
    readonly offset: number;
    readonly messageId: string;
    readonly reason: string;
    readonly message: string;
  },
): NewEvent => ({
  type: 'boundary.fact.quarantined',
  aggregateType: 'fact',
  aggregateId: entry.messageId,
  payload: {
    message_id: entry.messageId,
    from_zone: entry.from,
    to_zone: entry.to,
    offset: entry.offset,
    buffer: entry.buffer,
    reason: entry.reason,
    message: entry.message,
  },
  tenantId,
});
