import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';

const page = {
  mac: z.string(),
  store: z.string().describe('Code of the store'),
  page: z.int(),
};

const labelShown = defineEventType({
  type: 'label.shown',
  summary: 'A label shows what it should',
  aggregateType: 'label',
  schema: z.object({ ...page, hash: z.string().describe('Of the image') }),
});

const labelFailed = defineEventType({
  type: 'label.failed',
  summary: 'A label does not show what it should, and the last attempt to bring it there has failed',
  aggregateType: 'label',
  schema: z.object({ ...page, error: z.string() }),
});

export const labelEventTypes = [labelShown, labelFailed];
