/**
 * Certificates for development and tests, by the `openssl` program: an authority, and certificates with the URI that says zone
 * and role. A plant in production has an authority of its own; see docs/boundary.md for what its certificates need.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { TallymanError } from '../../../engine/errors.ts';

const run = promisify(execFile);

export interface AuthorityFiles {
  readonly cert: string;
  readonly key: string;
}

export interface CertificateRequest {
  readonly authority: AuthorityFiles;
  readonly cert: string;
  readonly key: string;
  readonly commonName: string;
  readonly uri: string;
  /** Host names and addresses that it serves under. */
  readonly hosts: readonly string[];
  readonly days: number;
}

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'] as const;

export async function makeAuthority(folder: string, days: number): Promise<AuthorityFiles> {
  const files = { cert: join(folder, 'ca.crt'), key: join(folder, 'ca.key') };
  await withConfig(
    join(folder, 'ca.cnf'),
    `tallyman development authority ${randomBytes(4).toString('hex')}`,
    [
      'basicConstraints = critical, CA:TRUE, pathlen:0',
      'keyUsage = critical, keyCertSign, cRLSign',
      'subjectKeyIdentifier = hash',
    ],
    (config) =>
      openssl([
        ...['req', '-x509', ...newKey, '-config', config, '-extensions', 'made'],
        ...['-days', String(days), '-keyout', files.key, '-out', files.cert],
      ]),
  );
  await chmod(files.key, 0o600);
  return files;
}

export async function makeCertificate(request: CertificateRequest): Promise<void> {
  const { authority, cert, key, commonName, uri, hosts, days } = request;
  const names = [`URI:${uri}`, ...hosts.map((host) => (isIP(host) ? `IP:${host}` : `DNS:${host}`))];
  const signingRequest = `${cert}.csr`;
  await withConfig(
    `${cert}.cnf`,
    commonName,
    [
      'basicConstraints = critical, CA:FALSE',
      'keyUsage = critical, digitalSignature',
      'extendedKeyUsage = serverAuth, clientAuth',
      'authorityKeyIdentifier = keyid',
      `subjectAltName = ${names.join(', ')}`,
    ],
    async (config) => {
      await openssl(['req', '-new', ...newKey, '-config', config, '-keyout', key, '-out', signingRequest]);
      await openssl([
        ...['x509', '-req', '-in', signingRequest, '-CA', authority.cert, '-CAkey', authority.key],
        ...['-set_serial', `0x${randomBytes(15).toString('hex')}`, '-days', String(days)],
        ...['-extfile', config, '-extensions', 'made', '-out', cert],
      ]);
    },
  ).finally(() => rm(signingRequest, { force: true }));
  await chmod(key, 0o600);
}

/** A configuration of our own: that of the machine may add or forbid anything. */
async function withConfig(
  path: string,
  commonName: string,
  extensions: readonly string[],
  work: (config: string) => Promise<void>,
): Promise<void> {
  const text = [
    ...['[req]', 'distinguished_name = name', 'prompt = no', 'default_md = sha256'],
    ...['[name]', `CN = ${commonName}`],
    ...['[made]', ...extensions, ''],
  ].join('\n');
  await writeFile(path, text);
  try {
    await work(path);
  } finally {
    await rm(path, { force: true });
  }
}

async function openssl(args: readonly string[]): Promise<void> {
  try {
    await run('openssl', [...args]);
  } catch (error) {
    const { code, stderr = '' } = error as { code?: unknown; stderr?: string };
    if (code === 'ENOENT')
      throw new TallymanError(
        'MISSING_PROGRAM',
        'certificates are made by the program "openssl", which is not installed: install it (apt-get install openssl), or have your own authority make them (docs/boundary.md)',
      );
    throw new TallymanError(
      'OPENSSL_FAILED',
      `openssl ${args[0]} failed: ${stderr.trim().split('\n').at(-1)}`,
      {
        cause: error,
      },
    );
  }
}
