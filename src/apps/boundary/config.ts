import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';
import { type EventRuleConfig, eventRules, type ReceivedRuleConfig, receivedRules } from './config-rules.ts';
import { orJson, slug } from './config-values.ts';
import type { OnFull } from './limits/admission.ts';
import { defaultLimits } from './limits/fill.ts';

const day = 24 * 3_600_000;
const GiB = 1024 ** 3;

/** A list of slugs, or as the text of a variable separated by commas. */
const slugs: z.ZodType<readonly string[]> = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? value.split(',') : value).map((one) => one.trim()))
  .pipe(z.array(slug));

const file = z.string().min(1).nullable();

/** Addresses, or as the text of a variable separated by commas. */
const addresses = (protocols: readonly string[], example: string): z.ZodType<readonly string[]> =>
  z
    .union([z.string(), z.array(z.string())])
    .transform((value) => (typeof value === 'string' ? value.split(',') : value).map((one) => one.trim()))
    .pipe(
      z.array(
        z.string().refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
          error: `expected addresses such as ${example}`,
        }),
      ),
    );

export const handOffWays = ['push', 'pull', 'one-way'] as const;
export type HandOffWay = (typeof handOffWays)[number];

export interface PeerConfig {
  /** Where the other zone's node listens. */
  readonly url?: string | undefined;
  /** What this node does itself. Nothing: the other node connects to this one. */
  readonly mode: readonly HandOffWay[];
  /** Public keys that sign the other zone's receipts: Ed25519, 32 bytes in base64. */
  readonly receiptKeys: readonly string[];
  /** With one-way mode: where facts to that zone are written as files, and where files of that zone come in. */
  readonly outbox?: string | undefined;
  readonly inbox?: string | undefined;
  /** With an outbox: every so often what was appended within the window is written again. */
  readonly resend?: { readonly everyMs: number; readonly windowMs: number } | undefined;
  /** Default: `boundary.limits.onFull`. */
  readonly onFull?: OnFull | undefined;
}

const wrongMode = 'mode of a peer must be push, pull, a list of both, or one-way';
const way = z.enum(handOffWays, { error: wrongMode });
const onFull = z.enum(['refuse', 'drop-oldest'], { error: 'expected refuse or drop-oldest' });
const folderOfPeer = z.string().min(1).optional();

const peer: z.ZodType<PeerConfig> = z.strictObject({
  url: z
    .string()
    .refine((text) => URL.canParse(text) && new URL(text).protocol === 'https:', {
      error: 'url of a peer must be an address that begins with https://',
    })
    .optional(),
  mode: z
    .union([way.transform((one) => [one]), z.array(way)], {
      error: wrongMode,
    })
    .default([]),
  receiptKeys: z
    .array(
      z.string().refine((text) => Buffer.from(text, 'base64').length === 32, {
        error: 'receiptKeys of a peer must be 32 bytes in base64 each',
      }),
    )
    .default([]),
  outbox: folderOfPeer,
  inbox: folderOfPeer,
  resend: z.strictObject({ everyMs: whole(1000), windowMs: whole(1000) }).optional(),
  onFull: onFull.optional(),
});

const peers: z.ZodType<Readonly<Record<string, PeerConfig>>> = orJson(
  z.record(slug, peer, {
    error: 'expected an object with a member for each peer, named by the slug of its zone',
  }),
);

const commonNames: z.ZodType<Readonly<Record<string, string>>> = orJson(
  z.record(
    z.string(),
    z.string().regex(/^[a-z0-9-]+\/(producer|consumer|peer)$/, {
      error: 'expected <zone>/<producer|consumer|peer> for each common name',
    }),
  ),
);

export const boundaryKeys = {
  'boundary.zone': key({
    schema: slug.nullable(),
    env: ['TALLYMAN_BOUNDARY_ZONE'],
    doc: 'Zone of this node, as a slug such as `plant-a`. Without it the part `boundary` does nothing and opens no port.',
    fallback: null,
  }),
  'boundary.zones': key<readonly string[]>({
    schema: slugs,
    env: ['TALLYMAN_BOUNDARY_ZONES'],
    doc: 'Zones that are known besides this one and its peers. Facts to them gather here until there is a peer.',
    fallback: [],
  }),
  'boundary.sendsTo': key<readonly string[]>({
    schema: slugs,
    env: ['TALLYMAN_BOUNDARY_SENDS_TO'],
    doc: 'Zones that producers may send facts to. Empty: all other zones that are known.',
    fallback: [],
  }),
  'boundary.tenant': key({
    schema: z.string().min(1).max(256),
    env: ['TALLYMAN_BOUNDARY_TENANT'],
    doc: 'Tenant whose facts this node serves. Both zones of a stream need the same name: receipts are signed with it.',
    fallback: 'default',
  }),
  'boundary.peers': key<Readonly<Record<string, PeerConfig>>>({
    schema: peers,
    env: ['TALLYMAN_BOUNDARY_PEERS'],
    doc: 'The other zones, by slug: `{"enterprise": {"url": "https://…", "mode": ["push", "pull"], "receiptKeys": ["…"]}}`. `mode` says what this node does: `push` its facts there, `pull` facts from there; neither: the other node connects to this one; `one-way` carries files: `outbox` and `inbox` are folders, and `resend` (`{"everyMs": 3600000, "windowMs": 86400000}`) writes what was appended within the window again. `onFull` is as `boundary.limits.onFull`. `receiptKeys`: public keys (Ed25519, 32 bytes in base64) that sign receipts there. As a variable: JSON.',
    fallback: {},
  }),
  'boundary.listen.host': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_BOUNDARY_HOST'],
    doc: 'Address that the boundary listens on. Without certificates loopback only.',
    fallback: '127.0.0.1',
  }),
  'boundary.listen.port': key({
    schema: whole(0, 65_535),
    env: ['TALLYMAN_BOUNDARY_PORT'],
    doc: 'Port of the boundary, for producers, consumers and peers; 0 is any free one. It is not the port of the HTTP API.',
    fallback: 7443,
  }),
  'boundary.tls.certFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_TLS_CERT_FILE'],
    doc: 'Certificate of this node, PEM, with the chain if there is one. It has the URI `spiffe://<trust domain>/zone/<zone>/peer`, and the names that peers connect to. It is shown to callers and to peers. Read again when it changes.',
    fallback: null,
  }),
  'boundary.tls.keyFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_TLS_KEY_FILE'],
    doc: 'Private key of the certificate, PEM. Read again when it changes.',
    fallback: null,
  }),
  'boundary.tls.caFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_TLS_CA_FILE'],
    doc: 'Authorities that sign the certificates of callers and peers, PEM. Read again when it changes.',
    fallback: null,
  }),
  'boundary.trustDomain': key({
    schema: z
      .string()
      .regex(/^[a-z0-9._-]{1,255}$/, { error: 'expected lower-case letters, digits, ".", "-" and "_"' })
      .nullable(),
    env: ['TALLYMAN_BOUNDARY_TRUST_DOMAIN'],
    doc: 'Trust domain of the certificates: `spiffe://<trust domain>/zone/<zone>/<producer|consumer|peer>`.',
    fallback: null,
  }),
  'boundary.commonNames': key<Readonly<Record<string, string>>>({
    schema: commonNames,
    env: ['TALLYMAN_BOUNDARY_COMMON_NAMES'],
    doc: 'Common names that count where a certificate has no URI, as `{"line-4": "plant-a/producer"}`. As a variable: JSON.',
    fallback: {},
  }),
  'boundary.receiptKeyFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE'],
    doc: 'Private key that signs receipts of what peers deliver: Ed25519, PKCS#8 in PEM.',
    fallback: null,
  }),
  'boundary.objects.storage': key<'files' | 'jetstream'>({
    schema: z.enum(['files', 'jetstream']),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_STORAGE'],
    doc: 'Where the bytes of objects lie: `files`, or `jetstream` for a zone that runs a NATS cluster and whose nodes share no folder. It does not depend on `boundary.storage`. Objects do not move when this changes.',
    fallback: 'files',
  }),
  'boundary.objects.folder': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_FOLDER'],
    doc: 'Folder of the objects, if they are files. All processes of the node need the same one.',
    fallback: '.tallyman/objects',
  }),
  'boundary.objects.maxBytes': key({
    schema: whole(1),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_MAX_BYTES'],
    doc: 'Largest object.',
    fallback: 10 * GiB,
  }),
  'boundary.objects.graceMs': key({
    schema: whole(60_000),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_GRACE_MS'],
    doc: 'An object that no fact names is removed after this time; so is an upload that broke off.',
    fallback: day,
  }),
  'boundary.objects.collectMs': key({
    schema: whole(1000, day),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_COLLECT_MS'],
    doc: 'How often objects without facts are looked for.',
    fallback: 3_600_000,
  }),
  'boundary.storage': key<'postgres' | 'jetstream'>({
    schema: z.enum(['postgres', 'jetstream']),
    env: ['TALLYMAN_BOUNDARY_STORAGE'],
    doc: 'Where the facts lie: `postgres`, or `jetstream` for a zone that runs a NATS cluster. Everything else stays in PostgreSQL. Facts do not move when this changes.',
    fallback: 'postgres',
  }),
  'boundary.jetstream.servers': key<readonly string[]>({
    schema: addresses(['nats:', 'tls:'], 'nats://host:port'),
    env: ['TALLYMAN_BOUNDARY_JETSTREAM_SERVERS'],
    doc: 'Servers of the NATS cluster, `nats://host:port` or `tls://host:port`; `user:password@` or `token@` may go before the host.',
    fallback: [],
  }),
  'boundary.jetstream.monitorUrls': key<readonly string[]>({
    schema: addresses(['http:', 'https:'], 'http://host:8222'),
    env: ['TALLYMAN_BOUNDARY_JETSTREAM_MONITOR_URLS'],
    doc: 'Monitoring ports of all servers of the cluster, `http://host:8222`. A node starts only if they say `sync_always`.',
    fallback: [],
  }),
  'boundary.jetstream.replicas': key({
    schema: whole(1, 5),
    env: ['TALLYMAN_BOUNDARY_JETSTREAM_REPLICAS'],
    doc: 'Copies of each fact and object: 3 or 5. With 1, for development, they are lost with the disk of one server.',
    fallback: 3,
  }),
  'boundary.jetstream.credentialsFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_JETSTREAM_CREDENTIALS_FILE'],
    doc: 'Credentials of the NATS account (`.creds`). Read with each connection.',
    fallback: null,
  }),
  'boundary.jetstream.caFile': key({
    schema: file,
    env: ['TALLYMAN_BOUNDARY_JETSTREAM_CA_FILE'],
    doc: 'Authority that signs the certificates of the NATS servers, PEM, where it is none of the system.',
    fallback: null,
  }),
  'boundary.limits.maxBytes': key({
    schema: whole(1),
    env: ['TALLYMAN_BOUNDARY_LIMITS_MAX_BYTES'],
    doc: 'What one stream may hold, whether its facts leave this zone or come in.',
    fallback: defaultLimits.maxBytes,
  }),
  'boundary.limits.reserveBytes': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_LIMITS_RESERVE_BYTES'],
    doc: 'Free space that streams and objects leave on the disk of `boundary.objects.folder`. Not looked at where objects are no files.',
    fallback: defaultLimits.reserveBytes,
  }),
  'boundary.limits.refuseAt': key({
    schema: z.number().gt(0).lte(1),
    env: ['TALLYMAN_BOUNDARY_LIMITS_REFUSE_AT'],
    doc: 'A stream that is this full refuses facts. A share of 1.',
    fallback: defaultLimits.refuseAt,
  }),
  'boundary.limits.acceptAt': key({
    schema: z.number().gt(0).lte(1),
    env: ['TALLYMAN_BOUNDARY_LIMITS_ACCEPT_AT'],
    doc: 'A stream that was full takes facts again when it is down to this. Must be below `boundary.limits.refuseAt`.',
    fallback: defaultLimits.acceptAt,
  }),
  'boundary.limits.onFull': key<OnFull>({
    schema: onFull,
    env: ['TALLYMAN_BOUNDARY_LIMITS_ON_FULL'],
    doc: 'What a full stream does: `refuse` facts, or drop its oldest ones (`drop-oldest`), which become gap records in the other zone. A peer may say otherwise.',
    fallback: 'refuse',
  }),
  'boundary.pace.factsPerSecond': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_PACE_FACTS_PER_SECOND'],
    doc: 'How many facts of a backlog this node carries in a second, for each stream. 0: no limit. While producers append the backlog steps back in any case.',
    fallback: 0,
  }),
  'boundary.pace.bytesPerSecond': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_PACE_BYTES_PER_SECOND'],
    doc: 'How many bytes of a backlog this node carries in a second, for each stream. Objects are not counted. 0: no limit.',
    fallback: 0,
  }),
  'boundary.retention.keepMs': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_RETENTION_KEEP_MS'],
    doc: 'How long facts are kept that every consumer has confirmed. Facts that some consumer, or the other zone, has not confirmed are kept longer. A stream that has reached `boundary.limits.refuseAt` trims confirmed facts earlier, down to `boundary.limits.acceptAt`.',
    fallback: 7 * day,
  }),
  'boundary.retention.trimMs': key({
    schema: whole(1000, day),
    env: ['TALLYMAN_BOUNDARY_RETENTION_TRIM_MS'],
    doc: 'How often old facts are looked for.',
    fallback: 60_000,
  }),
  'boundary.eventsAsFacts': key<readonly EventRuleConfig[]>({
    schema: eventRules,
    env: ['TALLYMAN_BOUNDARY_EVENTS_AS_FACTS'],
    doc: 'Events that become facts: `[{"event": "rfid.movement", "to": "enterprise", "predicate": "moved_to"}]`. `event` is a type, or a beginning such as `rfid.*`. `subject` (`tag:{payload.epc_hex}`; default: from the aggregate) and `labels` are optional. A new zone in `to` gets the events from the next start on. As a variable: JSON.',
    fallback: [],
  }),
  'boundary.factsAsEvents': key<readonly ReceivedRuleConfig[]>({
    schema: receivedRules,
    env: ['TALLYMAN_BOUNDARY_FACTS_AS_EVENTS'],
    doc: 'Facts that come in and become events `boundary.fact.received`: `[{"predicate": "moved_to", "from": "plant-a"}]`; `[{}]` is every fact. As a variable: JSON.',
    fallback: [],
  }),
  'boundary.stalledAfterMs': key({
    schema: whole(1000, day),
    env: ['TALLYMAN_BOUNDARY_STALLED_AFTER_MS'],
    doc: 'A stream is stalled when the other zone answers, facts wait, and the frontier has not moved for this long.',
    fallback: 60_000,
  }),
} as const;

export type BoundaryConfig = ValuesOf<typeof boundaryKeys>;
