import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';

export const labelsKeys = {
  'labels.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_LABELS_CONCURRENCY'],
    doc: 'Labels that one process pushes images to at once.',
    fallback: 20,
  }),
  'labels.askAfterMs': key({
    schema: whole(0, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_AFTER_MS'],
    doc: 'How long after a push the gateway is first asked whether the label shows the image.',
    fallback: 2000,
  }),
  'labels.askIntervalMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_INTERVAL_MS'],
    doc: 'How often a process looks for labels whose status is due to be asked for at their gateway.',
    fallback: 2000,
  }),
  'labels.driftCron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_LABELS_DRIFT_CRON'],
    doc: 'When the drift check compares what labels should show with what their gateways report: a cron expression, in UTC.',
    fallback: '*/10 * * * *',
  }),
  'labels.allowPrivateAddresses': key<boolean | string>({
    schema: z.union([
      z.boolean(),
      z.string().regex(/^[0-9a-fA-F:.]+\/\d{1,3}(,[0-9a-fA-F:.]+\/\d{1,3})*$/, {
        error: 'expected true, false, or networks such as 10.1.0.0/16,fd00::/8',
      }),
    ]),
    env: ['TALLYMAN_LABELS_ALLOW_PRIVATE'],
    doc: 'Allow label gateways of other tenants than `default` at private, loopback and link-local addresses: `true`, or a list of allowed networks, separated by commas. Gateways of `default` may be anywhere.',
    fallback: false,
  }),
} as const;

export type LabelsConfig = ValuesOf<typeof labelsKeys>;
