import { z } from 'zod';
import { key, optionalUrl, type ValuesOf, whole } from '../../config/key.ts';

export const rfidKeys = {
  'retention.rawReadsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_RAW_READS_MS'],
    doc: 'How long raw tag reads are kept, and so can be replayed. Reads that replay has not reached yet are kept longer.',
    fallback: 30 * 24 * 3_600_000,
  }),
  'retention.readsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_READS_MS'],
    doc: 'How long processed tag reads are remembered, to recognise duplicates. Must not be below `retention.rawReadsMs`: a replayed read must be recognised.',
    fallback: 90 * 24 * 3_600_000,
  }),
  'replay.intervalMs': key({
    schema: whole(0, 86_400_000),
    env: ['TALLYMAN_REPLAY_INTERVAL_MS'],
    doc: 'How often the app `rfid` looks for unprocessed tag reads in `iot.tag_reads`. 0: only after the broker lost our session.',
    fallback: 60_000,
  }),
  'wms.url': key({
    schema: optionalUrl('http:', 'https:'),
    env: ['TALLYMAN_WMS_URL'],
    doc: 'Address of the warehouse system from which the app `rfid` fetches outbound license plates. Without it none are fetched.',
    fallback: null,
  }),
  'wms.authorization': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_WMS_AUTHORIZATION'],
    doc: 'The `Authorization` header for the warehouse system, such as `Bearer …`.',
    fallback: null,
    secret: true,
  }),
  'wms.cron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_WMS_CRON'],
    doc: 'When plates are fetched: a cron expression, in UTC.',
    fallback: '*/5 * * * *',
  }),
  'wms.tenantId': key({
    schema: z.string().min(1).max(100),
    env: ['TALLYMAN_WMS_TENANT'],
    doc: 'The tenant that owns these shipments.',
    fallback: 'default',
  }),
} as const;

export type RfidConfig = ValuesOf<typeof rfidKeys>;
