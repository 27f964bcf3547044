import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';
import { isLoopbackHost } from '../../network/loopback.ts';
import { isSlug } from './domain/zones.ts';
import { defaultLimits } from './limits/fill.ts';

const day = 24 * 3_600_000;
const GiB = 1024 ** 3;

const slug = z.string().refine(isSlug, {
  error: 'expected a slug: up to 63 lower-case letters, digits and single hyphens, such as plant-a',
});

/** A list of slugs, or as the text of a variable separated by commas. */
const slugs: z.ZodType<readonly string[]> = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? value.split(',') : value).map((one) => one.trim()))
  .pipe(z.array(slug));

const file = z.string().min(1).nullable();

/** The text of a variable is JSON. */
const orJson = <T>(schema: z.ZodType<T>): z.ZodType<T> =>
  z.preprocess((value) => {
    if (typeof value !== 'string') return value;
    try {
      return JSON.parse(value);
    } catch {
      return value;
    }
  }, schema);

export const handOffWays = ['push', 'pull'] as const;
export type HandOffWay = (typeof handOffWays)[number];

export interface PeerConfig {
  /** Where the other zone's node listens. */
  readonly url?: string | undefined;
  /** What this node does itself. Nothing: the other node connects to this one. */
  readonly mode: readonly HandOffWay[];
  /** Public keys that sign the other zone's receipts: Ed25519, 32 bytes in base64. */
  readonly receiptKeys: readonly string[];
}

const way = z.enum(handOffWays, { error: 'mode of a peer must be push, pull, or a list of both' });

const peer: z.ZodType<PeerConfig> = z.strictObject({
  url: z
    .string()
    .refine((text) => URL.canParse(text) && new URL(text).protocol === 'https:', {
      error: 'url of a peer must be an address that begins with https://',
    })
    .optional(),
  mode: z
    .union([way.transform((one) => [one]), z.array(way)], {
      error: 'mode of a peer must be push, pull, or a list of both',
    })
    .default([]),
  receiptKeys: z
    .array(
      z.string().refine((text) => Buffer.from(text, 'base64').length === 32, {
        error: 'receiptKeys of a peer must be 32 bytes in base64 each',
      }),
    )
    .default([]),
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
    doc: 'The other zones, by slug: `{"enterprise": {"url": "https://…", "mode": ["push", "pull"], "receiptKeys": ["…"]}}`. `mode` says what this node does: `push` its facts there, `pull` facts from there; neither: the other node connects to this one. `receiptKeys`: public keys (Ed25519, 32 bytes in base64) that sign receipts there. As a variable: JSON.',
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
  'boundary.objects.folder': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_BOUNDARY_OBJECTS_FOLDER'],
    doc: 'Folder of the objects. All processes of the node need the same one.',
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
  'boundary.limits.maxBytes': key({
    schema: whole(1),
    env: ['TALLYMAN_BOUNDARY_LIMITS_MAX_BYTES'],
    doc: 'What one stream may hold.',
    fallback: defaultLimits.maxBytes,
  }),
  'boundary.limits.reserveBytes': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_LIMITS_RESERVE_BYTES'],
    doc: 'Free space that streams leave on the disk of `boundary.objects.folder`.',
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
  'boundary.retention.keepMs': key({
    schema: whole(0),
    env: ['TALLYMAN_BOUNDARY_RETENTION_KEEP_MS'],
    doc: 'How long facts are kept that every consumer has confirmed. Facts that some consumer, or the other zone, has not confirmed are kept longer.',
    fallback: 7 * day,
  }),
  'boundary.retention.trimMs': key({
    schema: whole(1000, day),
    env: ['TALLYMAN_BOUNDARY_RETENTION_TRIM_MS'],
    doc: 'How often old facts are looked for.',
    fallback: 60_000,
  }),
  'boundary.stalledAfterMs': key({
    schema: whole(1000, day),
    env: ['TALLYMAN_BOUNDARY_STALLED_AFTER_MS'],
    doc: 'A stream is stalled when the other zone answers, facts wait, and the frontier has not moved for this long.',
    fallback: 60_000,
  }),
} as const;

export type BoundaryConfig = ValuesOf<typeof boundaryKeys>;

/** Settings that do not fit together, with the name of the key. */
export function boundaryProblems(config: BoundaryConfig): readonly string[] {
  const zone = config['boundary.zone'];
  if (zone === null) return [];
  return [
    ...tlsProblems(config),
    ...peerProblems(config, zone),
    ...(config['boundary.limits.acceptAt'] < config['boundary.limits.refuseAt']
      ? []
      : [
          `boundary.limits.acceptAt (${config['boundary.limits.acceptAt']}) must be below boundary.limits.refuseAt (${config['boundary.limits.refuseAt']}): a full stream would take facts again at once`,
        ]),
    ...(config['boundary.receiptKeyFile'] === null
      ? [
          'boundary.receiptKeyFile is not set: it signs receipts of what peers deliver. Make one: openssl genpkey -algorithm ed25519 -out receipt.key',
        ]
      : []),
  ];
}

const tlsKeys = ['boundary.tls.certFile', 'boundary.tls.keyFile', 'boundary.tls.caFile'] as const;

function tlsProblems(config: BoundaryConfig): string[] {
  const missing = tlsKeys.filter((name) => config[name] === null);
  if (missing.length === tlsKeys.length) {
    const host = config['boundary.listen.host'];
    return [
      ...(isLoopbackHost(host)
        ? []
        : [
            `boundary.listen.host is ${host}: without certificates (boundary.tls.certFile) the boundary listens on loopback only`,
          ]),
      ...(Object.keys(config['boundary.peers']).length === 0
        ? []
        : [
            'boundary.peers needs certificates: set boundary.tls.certFile, boundary.tls.keyFile and boundary.tls.caFile',
          ]),
    ];
  }
  return [
    ...missing.map((name) => `${name} is not set, and belongs to the other keys under boundary.tls`),
    ...(config['boundary.trustDomain'] === null
      ? ['boundary.trustDomain is not set: certificates name it']
      : []),
  ];
}

function peerProblems(config: BoundaryConfig, zone: string): string[] {
  const others = Object.entries(config['boundary.peers']);
  const known = new Set([...others.map(([name]) => name), ...config['boundary.zones']]);
  const sendsTo = config['boundary.sendsTo'];
  return [
    ...others.flatMap(([name, { url, mode, receiptKeys }]) => {
      const key = `boundary.peers.${name}`;
      if (name === zone) return [`${key} is the zone of this node (boundary.zone)`];
      const isSentTo = sendsTo.length === 0 || sendsTo.includes(name);
      return [
        ...(mode.length > 0 && url === undefined
          ? [`${key}.url is not set, and ${key}.mode says to connect to it`]
          : []),
        ...(isSentTo && receiptKeys.length === 0
          ? [`${key}.receiptKeys is empty: receipts of what is sent there could not be checked`]
          : []),
      ];
    }),
    ...sendsTo
      .filter((name) => !known.has(name))
      .map(
        (name) =>
          `boundary.sendsTo names "${name}", which is neither in boundary.peers nor in boundary.zones`,
      ),
  ];
}
