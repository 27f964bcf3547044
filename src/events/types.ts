import { z } from 'zod';
import { defineEventType } from './catalogue.ts';

/** The schemas of the engine's own events; functions/engine.sql writes them. */
export const engineEventTypes = [
  defineEventType({
    type: 'job.dead_letter',
    summary: 'A job used up its attempts and became a dead letter',
    aggregateType: 'job',
    schema: z.object({
      id: z.string(),
      source: z.string(),
      queue: z.string(),
      kind: z.string(),
      lane: z.string().nullable(),
      attempts: z.int(),
      redrives: z.int(),
      correlation_id: z.string(),
      error: z.object({ code: z.string().nullable(), message: z.string().nullable() }),
    }),
  }),
  defineEventType({
    type: 'lane.blocked',
    summary: 'A job of a lane with the policy `block` failed for good; the lane waits for a person',
    aggregateType: 'lane',
    schema: z.object({ key: z.string(), queue: z.string(), blocked_by: z.string() }),
  }),
];
