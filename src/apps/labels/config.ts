import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';

export const labelsKeys = {
  'labels.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_LABELS_CONCURRENCY'],
    doc: 'Labels that one process brings images to at once.',
    fallback: 20,
  }),
  'labels.askAfterMs': key({
    schema: whole(0, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_AFTER_MS'],
    doc: 'How long after a push its gateway is first asked whether the label shows it.',
    fallback: 2000,
  }),
  'labels.askIntervalMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_INTERVAL_MS'],
    doc: 'How often a process looks for labels about which their gateway is due to be asked.',
    fallback: 2000,
  }),
  'labels.driftCron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_LABELS_DRIFT_CRON'],
    doc: 'When everything that labels should show is compared with what their gateways say: a cron expression, in UTC.',
    fallback: '*/10 * * * *',
  }),
} as const;

export type LabelsConfig = ValuesOf<typeof labelsKeys>;
