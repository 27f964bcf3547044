/** Two zones that trust each other: a development authority, certificates for both, and their configurations. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { TallymanError } from '../../../engine/errors.ts';
import { publicKeyText } from '../settings.ts';
import { type AuthorityFiles, makeAuthority, makeCertificate } from './openssl.ts';

export interface PairOptions {
  /** The zone that connects to the other one, as plants do that let nobody in. */
  readonly first: string;
  /** The zone that listens. */
  readonly second: string;
  readonly folder: string;
  readonly trustDomain: string;
  /** Where the node of the second zone can be reached. */
  readonly url: string;
  /** Of the first zone, for its own producers and consumers. */
  readonly port: number;
  readonly days: number;
}

export interface PairedZone {
  readonly zone: string;
  readonly configFile: string;
  /** What is in the file. */
  readonly config: { readonly boundary: Readonly<Record<string, unknown>> };
}

export interface Paired {
  readonly authority: string;
  readonly zones: readonly [PairedZone, PairedZone];
}

const roles = ['peer', 'producer', 'consumer'] as const;

export async function pairZones(options: PairOptions): Promise<Paired> {
  const folder = resolve(options.folder);
  await requireNew(join(folder, 'ca.crt'));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const authority = await makeAuthority(folder, options.days);
  const { hostname, port } = new URL(options.url);
  const isLocal = hostname === 'localhost' || hostname.startsWith('127.');
  const made = {
    first: await makeZone(options, options.first, folder, authority, []),
    second: await makeZone(options, options.second, folder, authority, [
      hostname.replace(/^\[(.*)\]$/, '$1'),
    ]),
  };
  const first = await configured(options, made.first, {
    listen: { host: '127.0.0.1', port: options.port },
    peers: {
      [options.second]: { url: options.url, mode: ['push', 'pull'], receiptKeys: [made.second.receiptKey] },
    },
  });
  const second = await configured(options, made.second, {
    listen: { host: isLocal ? '127.0.0.1' : '0.0.0.0', port: port === '' ? 443 : Number(port) },
    peers: { [options.first]: { receiptKeys: [made.first.receiptKey] } },
  });
  return { authority: authority.cert, zones: [first, second] };
}

interface MadeZone {
  readonly zone: string;
  readonly folder: string;
  readonly receiptKey: string;
  readonly authority: AuthorityFiles;
}

async function makeZone(
  { trustDomain, days }: PairOptions,
  zone: string,
  parent: string,
  authority: AuthorityFiles,
  hosts: readonly string[],
): Promise<MadeZone> {
  const folder = join(parent, zone);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const names = [...new Set(['localhost', '127.0.0.1', ...hosts])];
  for (const role of roles)
    await makeCertificate({
      authority,
      cert: join(folder, `${role}.crt`),
      key: join(folder, `${role}.key`),
      commonName: `${zone} ${role}`,
      uri: `spiffe://${trustDomain}/zone/${zone}/${role}`,
      hosts: role === 'peer' ? names : [],
      days,
    });
  const { privateKey } = generateKeyPairSync('ed25519');
  await writeFile(join(folder, 'receipt.key'), privateKey.export({ format: 'pem', type: 'pkcs8' }), {
    mode: 0o600,
  });
  return { zone, folder, receiptKey: publicKeyText(privateKey), authority };
}

async function configured(
  { trustDomain }: PairOptions,
  { zone, folder, authority }: MadeZone,
  more: { readonly listen: object; readonly peers: object },
): Promise<PairedZone> {
  const config = {
    boundary: {
      zone,
      trustDomain,
      listen: more.listen,
      tls: { certFile: join(folder, 'peer.crt'), keyFile: join(folder, 'peer.key'), caFile: authority.cert },
      receiptKeyFile: join(folder, 'receipt.key'),
      objects: { folder: join(folder, 'objects') },
      peers: more.peers,
    },
  };
  const configFile = join(folder, 'tallyman.config.json');
  await writeFile(configFile, `${JSON.stringify(config, null, 2)}\n`);
  return { zone, configFile, config };
}

/** Certificates that are in use are not replaced by others of an authority that nobody knows. */
async function requireNew(path: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found)
    throw new TallymanError(
      'BAD_OPTION',
      `${path} is there already: choose another folder with --folder, or remove it`,
    );
}
