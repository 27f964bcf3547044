import { z } from 'zod';
import { key, optionalUrl, type ValuesOf, whole } from '../../config/key.ts';

export const rfidKeys = {
  'retention.rawReadsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_RAW_READS_MS'],
    doc: 'How long tag reads are kept as they came, to be replayed. What replay has not been through is kept longer.',
    fallback: 30 * 24 * 3_600_000,
  }),
  'retention.readsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_READS_MS'],
    doc: 'How long it is known which tag reads were processed. Must not be below `retention.rawReadsMs`: a read that can be replayed has to be recognised.',
    fallback: 90 * 24 * 3_600_000,
  }),
  'replay.intervalMs': key({
    schema: whole(0, 86_400_000),
    env: ['TALLYMAN_REPLAY_INTERVAL_MS'],
    doc: 'How often the app `rfid` looks for tag reads in `iot.tag_reads` that nobody has processed. 0: only after the broker lost our session.',
    fallback: 60_000,
  }),
  'wms.url': key({
    schema: optionalUrl('http:', 'https:'),
    env: ['TALLYMAN_WMS_URL'],
    doc: 'Warehouse system to fetch outbound license plates from, by the app `rfid`. Without it none are fetched.',
    fallback: null,
  }),
  'wms.authorization': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_WMS_AUTHORIZATION'],
    doc: 'What it is sent as `Authorization`, such as `Bearer …`.',
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
    doc: 'Whose shipments they are.',
    fallback: 'default',
  }),
} as const;

export type RfidConfig = ValuesOf<typeof rfidKeys>;
