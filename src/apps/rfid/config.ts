import { z } from 'zod';
import { key, optionalUrl, type ValuesOf, whole } from '../../config/key.ts';
import { clockPolicies } from './examine.ts';

/** A list of prefixes, or as the text of a variable separated by commas. */
const prefixes: z.ZodType<readonly string[]> = z
  .union([z.string(), z.array(z.string())])
  .transform((value) =>
    (typeof value === 'string' ? value.split(',') : value).map((one) => one.trim().toUpperCase()),
  )
  .pipe(z.array(z.string().regex(/^[0-9A-F]{1,64}$/, 'expected hex digits, such as 3314257B')));

/** Of window and stay. */
export const longestMs = 24 * 3_600_000;
export const defaultMovementWindowMs = 300_000;

export const rfidKeys = {
  'rfid.tags.schemes': key<'gs1' | 'any'>({
    schema: z.enum(['gs1', 'any']),
    env: ['TALLYMAN_RFID_TAGS_SCHEMES'],
    doc: 'Which tags count. `gs1`: SGTIN-96, SSCC-96, GRAI-96 and GIAI-96; other tags are refused, with one dead letter for each tag and device. `any`: other tags are kept by their hex digits.',
    fallback: 'gs1',
  }),
  'rfid.tags.include': key<readonly string[]>({
    schema: prefixes,
    env: ['TALLYMAN_RFID_TAGS_INCLUDE'],
    doc: 'Only tags that begin with one of these hex digits count; others are ignored, and counted by device. Empty: all.',
    fallback: [],
  }),
  'rfid.tags.ignore': key<readonly string[]>({
    schema: prefixes,
    env: ['TALLYMAN_RFID_TAGS_IGNORE'],
    doc: 'Tags that begin with one of these hex digits are ignored, and counted by device.',
    fallback: [],
  }),
  'rfid.clock.policy': key<(typeof clockPolicies)[number]>({
    schema: z.enum(clockPolicies),
    env: ['TALLYMAN_RFID_CLOCK_POLICY'],
    doc: 'Reads whose time is ahead of their arrival by more than `rfid.clock.aheadLimitMs`: `keep` (up to 5 minutes ahead, then refused), `clamp` (they count as made when they arrived), or `refuse`.',
    fallback: 'keep',
  }),
  'rfid.clock.aheadLimitMs': key({
    schema: whole(0, 86_400_000),
    env: ['TALLYMAN_RFID_CLOCK_AHEAD_LIMIT_MS'],
    doc: 'A device whose clock is ahead by more than this is warned about.',
    fallback: 30_000,
  }),
  'rfid.maxAttempts': key({
    schema: whole(1, 100),
    env: ['TALLYMAN_RFID_MAX_ATTEMPTS'],
    doc: 'How often a read or a camera read that failed is tried before it becomes a dead letter.',
    fallback: 5,
  }),
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
  'rfid.movementWindowMs': key({
    schema: whole(0, longestMs),
    env: ['TALLYMAN_RFID_MOVEMENT_WINDOW_MS'],
    doc: 'The same movement of a basket (from, to) again within this time is counted on the first one, as `repeats`. 0 keeps every movement.',
    fallback: defaultMovementWindowMs,
  }),
  'rfid.minimumStayMs': key({
    schema: whole(0, longestMs),
    env: ['TALLYMAN_RFID_MINIMUM_STAY_MS'],
    doc: 'A basket has moved to a place when it stayed there this long. 0: when it was read there once.',
    fallback: 0,
  }),
  'rfid.lateHorizonMs': key({
    schema: whole(0).nullable(),
    env: ['TALLYMAN_RFID_LATE_HORIZON_MS'],
    doc: 'A late read that is older than this changes no movement and is recorded as `stale`. Without it: older than the reads that are kept (`retention.readsMs`).',
    fallback: null,
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

/** How reads are judged, for a `TagReadProcessor`. */
export const judgement = (config: RfidConfig) => ({
  tags: {
    schemes: config['rfid.tags.schemes'],
    include: config['rfid.tags.include'],
    ignore: config['rfid.tags.ignore'],
  },
  clock: { policy: config['rfid.clock.policy'], aheadLimit: config['rfid.clock.aheadLimitMs'] * 1000 },
});

/** What counts as a movement, by the configuration. */
export const movementsOf = (config: RfidConfig) => ({
  windowMs: config['rfid.movementWindowMs'],
  minimumStayMs: config['rfid.minimumStayMs'],
  lateHorizonMs: config['rfid.lateHorizonMs'],
});
