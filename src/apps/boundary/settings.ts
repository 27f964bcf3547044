/** The configuration of a node, as its parts need it. */
import { createPrivateKey, createPublicKey, hash, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import type { BoundaryConfig, HandOffWay } from './config.ts';
import type { EventRule, ReceivedRule } from './domain/event-rules.ts';
import type { IdentityRules } from './domain/identity.ts';
import { isSignedBy, type ReceiptKey, type SignedReceipt } from './domain/receipt.ts';
import { type Zone, Zones } from './domain/zones.ts';
import type { PaceOptions } from './handoff/pace.ts';
import type { OnFull } from './limits/admission.ts';
import type { Limits } from './limits/fill.ts';
import type { JetStreamOptions } from './store/jetstream/session.ts';

export interface PeerSettings {
  readonly zone: Zone;
  readonly url: string | undefined;
  readonly ways: readonly HandOffWay[];
  readonly receiptKeys: readonly KeyObject[];
  /** In one-way mode: where files leave, and where they come in. */
  readonly outbox?: string | undefined;
  readonly inbox?: string | undefined;
  readonly resend?: { readonly everyMs: number; readonly windowMs: number } | undefined;
  /** What the stream to this zone does when it is full. */
  readonly onFull?: OnFull | undefined;
}

export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
}

export interface Settings {
  readonly zone: Zone;
  readonly zones: Zones;
  readonly sendsTo: readonly Zone[];
  readonly tenantId: string;
  readonly peers: readonly PeerSettings[];
  readonly listen: { readonly host: string; readonly port: number };
  readonly tls: { readonly files: CertificateFiles; readonly identities: IdentityRules } | undefined;
  readonly receiptKeyFile: string;
  readonly objects: {
    readonly storage: 'files' | 'jetstream';
    readonly folder: string;
    readonly maxBytes: number;
    readonly graceMs: number;
    readonly collectMs: number;
  };
  /** Where the facts lie. */
  readonly storage: 'postgres' | 'jetstream';
  /** Used by what lies there. */
  readonly jetstream: Omit<JetStreamOptions, 'logger' | 'keeps'>;
  readonly limits: Limits;
  /** Of streams to zones that are no peers, and of peers that do not say. */
  readonly onFull: OnFull;
  readonly pace: Pick<PaceOptions, 'factsPerSecond' | 'bytesPerSecond'>;
  readonly keepMs: number;
  readonly trimMs: number;
  readonly stalledAfterMs: number;
  /** Events that become facts. */
  readonly eventRules: readonly EventRule[];
  /** Facts that become events. */
  readonly receivedRules: readonly ReceivedRule[];
}

/** Undefined where no zone is configured. */
export function settingsFrom(config: BoundaryConfig): Settings | undefined {
  const own = config['boundary.zone'];
  if (own === null) return undefined;
  const peers = Object.entries(config['boundary.peers']);
  const zones = new Zones([...new Set([own, ...peers.map(([name]) => name), ...config['boundary.zones']])]);
  const zone = zones.resolve(own, 'boundary.zone');
  const listed = config['boundary.sendsTo'].map((name) => zones.resolve(name, 'boundary.sendsTo'));
  return {
    zone,
    zones,
    sendsTo: listed.length > 0 ? listed : zones.all.filter((each) => each !== zone),
    tenantId: config['boundary.tenant'],
    peers: peers.map(([name, { url, mode, receiptKeys, outbox, inbox, resend, onFull }]) => ({
      zone: zones.resolve(name, 'boundary.peers'),
      url,
      ways: mode,
      receiptKeys: receiptKeys.map(publicKeyOf),
      ...{ outbox, inbox, resend, onFull },
    })),
    listen: { host: config['boundary.listen.host'], port: config['boundary.listen.port'] },
    tls: tlsOf(config),
    receiptKeyFile: config['boundary.receiptKeyFile'] ?? '',
    objects: {
      storage: config['boundary.objects.storage'],
      folder: config['boundary.objects.folder'],
      maxBytes: config['boundary.objects.maxBytes'],
      graceMs: config['boundary.objects.graceMs'],
      collectMs: config['boundary.objects.collectMs'],
    },
    storage: config['boundary.storage'],
    jetstream: jetstreamOf(config),
    limits: {
      maxBytes: config['boundary.limits.maxBytes'],
      reserveBytes: config['boundary.limits.reserveBytes'],
      refuseAt: config['boundary.limits.refuseAt'],
      acceptAt: config['boundary.limits.acceptAt'],
    },
    onFull: config['boundary.limits.onFull'],
    pace: paceOf(config),
    keepMs: config['boundary.retention.keepMs'],
    trimMs: config['boundary.retention.trimMs'],
    stalledAfterMs: config['boundary.stalledAfterMs'],
    eventRules: config['boundary.eventsAsFacts'].map((rule) => ({
      ...rule,
      to: zones.resolve(rule.to, 'boundary.eventsAsFacts'),
    })),
    receivedRules: config['boundary.factsAsEvents'].map(({ predicate, from }) => ({
      predicate,
      from: from === undefined ? undefined : zones.resolve(from, 'boundary.factsAsEvents'),
    })),
  };
}

function paceOf(config: BoundaryConfig): Settings['pace'] {
  const factsPerSecond = config['boundary.pace.factsPerSecond'];
  const bytesPerSecond = config['boundary.pace.bytesPerSecond'];
  return {
    ...(factsPerSecond > 0 && { factsPerSecond }),
    ...(bytesPerSecond > 0 && { bytesPerSecond }),
  };
}

/** What a stream of this zone does when it is full. */
export const onFullOf = ({ peers, onFull }: Pick<Settings, 'peers' | 'onFull'>, to: string): OnFull =>
  peers.find(({ zone }) => zone === to)?.onFull ?? onFull;

function jetstreamOf(config: BoundaryConfig): Settings['jetstream'] {
  return {
    servers: config['boundary.jetstream.servers'],
    monitorUrls: config['boundary.jetstream.monitorUrls'],
    replicas: config['boundary.jetstream.replicas'],
    credentialsFile: config['boundary.jetstream.credentialsFile'] ?? undefined,
    caFile: config['boundary.jetstream.caFile'] ?? undefined,
  };
}

function tlsOf(config: BoundaryConfig): Settings['tls'] {
  const certFile = config['boundary.tls.certFile'];
  const keyFile = config['boundary.tls.keyFile'];
  const caFile = config['boundary.tls.caFile'];
  if (certFile === null || keyFile === null || caFile === null) return undefined;
  return {
    files: { certFile, keyFile, caFile },
    identities: {
      trustDomain: config['boundary.trustDomain'] ?? '',
      commonNames: config['boundary.commonNames'],
    },
  };
}

/** The start of every Ed25519 public key in DER; the 32 bytes follow. */
const ed25519Prefix = Buffer.from('302a300506032b6570032100', 'hex');

const publicKeyOf = (base64: string): KeyObject =>
  createPublicKey({
    key: Buffer.concat([ed25519Prefix, Buffer.from(base64, 'base64')]),
    format: 'der',
    type: 'spki',
  });

/** As `receiptKeys` of a peer names it. */
export const publicKeyText = (key: KeyObject): string =>
  (key.type === 'public' ? key : createPublicKey(key))
    .export({ format: 'der', type: 'spki' })
    .subarray(ed25519Prefix.length)
    .toString('base64');

/** The key's own hash names it, so that nothing has to be agreed upon. */
export async function loadReceiptKey(path: string): Promise<ReceiptKey> {
  let privateKey: KeyObject;
  try {
    privateKey = createPrivateKey(await readFile(path, 'utf8'));
  } catch (error) {
    throw badFile('boundary.receiptKeyFile', path, messageOf(error));
  }
  if (privateKey.asymmetricKeyType !== 'ed25519')
    throw badFile(
      'boundary.receiptKeyFile',
      path,
      `its type is ${privateKey.asymmetricKeyType}, not ed25519`,
    );
  return { id: keyIdOf(privateKey), privateKey };
}

const keyIdOf = (key: KeyObject): string =>
  hash('sha256', Buffer.from(publicKeyText(key), 'base64')).slice(0, 16);

/** The public key of a zone by its id: of a peer, or of this zone. */
export const keyFinder =
  ({ zone: own, peers }: Pick<Settings, 'zone' | 'peers'>, { id, privateKey }: ReceiptKey) =>
  (zone: string, keyId: string): KeyObject | undefined =>
    zone === own
      ? keyId === id
        ? createPublicKey(privateKey)
        : undefined
      : peers.find((peer) => peer.zone === zone)?.receiptKeys.find((key) => keyIdOf(key) === keyId);

/** Whether the zone that the stream goes to has signed it. */
export const genuineBy =
  (peers: readonly PeerSettings[]) =>
  (receipt: SignedReceipt): boolean =>
    peers.some(
      ({ zone, receiptKeys }) => zone === receipt.to && receiptKeys.some((key) => isSignedBy(receipt, key)),
    );

export const badFile = (key: string, path: string, why: string): TallymanError =>
  new TallymanError('BAD_CONFIG', `${key} (${path}) cannot be used: ${why}`);
