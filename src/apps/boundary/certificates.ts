/** The certificate of a node, from files that may change while it runs. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import { type IdentityRules, identityOf } from './domain/identity.ts';
import type { TlsMaterial } from './rpc/server.ts';
import { badFile, type CertificateFiles } from './settings.ts';

export interface Certificates extends TlsMaterial {
  readonly expiresAt: Date;
}

export interface CertificateOptions {
  readonly files: CertificateFiles;
  readonly identities: IdentityRules;
  /** The certificate must be that of a peer of this zone. */
  readonly zone: string;
}

/** Reads the files and checks that they fit together: a wrong one is refused with the name of its key. */
export async function loadCertificates(options: CertificateOptions): Promise<Certificates> {
  const { certFile, keyFile, caFile } = options.files;
  const [cert, key, ca] = await Promise.all([
    read('boundary.tls.certFile', certFile),
    read('boundary.tls.keyFile', keyFile),
    read('boundary.tls.caFile', caFile),
  ]);
  return checked({ cert, key, ca }, options);
}

function checked(
  { cert, key, ca }: TlsMaterial,
  { files, identities, zone }: CertificateOptions,
): Certificates {
  const certificate = parse('boundary.tls.certFile', files.certFile, () => new X509Certificate(cert));
  const privateKey = parse('boundary.tls.keyFile', files.keyFile, () => createPrivateKey(key));
  parse('boundary.tls.caFile', files.caFile, () => new X509Certificate(ca));
  if (!certificate.checkPrivateKey(privateKey))
    throw badFile('boundary.tls.keyFile', files.keyFile, 'it is not the key of boundary.tls.certFile');
  const { name, ...who } = parse('boundary.tls.certFile', files.certFile, () =>
    identityOf(
      {
        subjectAltName: certificate.subjectAltName,
        commonName: /^CN=(.*)$/m.exec(certificate.subject)?.[1],
      },
      identities,
    ),
  );
  if (who.zone !== zone || who.role !== 'peer')
    throw badFile(
      'boundary.tls.certFile',
      files.certFile,
      `it is for ${name}, and this node needs one of a peer of zone "${zone}"`,
    );
  return { cert, key, ca, expiresAt: certificate.validToDate };
}

async function read(key: string, path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw badFile(key, path, messageOf(error));
  }
}

function parse<T>(key: string, path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw badFile(key, path, messageOf(error));
  }
}

export interface CertificateWatchOptions extends CertificateOptions {
  readonly logger: Logger;
  /** Gets each new certificate. */
  readonly onChange: (certificates: Certificates) => Promise<void>;
  /** Default 2,000. */
  readonly everyMs?: number;
}

/**
 * Reads the files again and again: events of a file system do not come for mounted secrets and network drives. A certificate
 * that does not fit its key, as between two writes, is not taken: the one before stays, and the next look finds the rest.
 */
export class CertificateWatch {
  readonly #options: CertificateWatchOptions;
  readonly #stopping = new AbortController();
  #current: Certificates;
  #trouble: string | undefined;
  #running: Promise<void> | undefined;

  constructor(current: Certificates, options: CertificateWatchOptions) {
    this.#current = current;
    this.#options = options;
  }

  /** The ones that are in use. */
  get current(): Certificates {
    return this.#current;
  }

  /** What is wrong with the files, or with the certificate. */
  trouble(now: Date): string | undefined {
    if (this.#current.expiresAt <= now)
      return `the certificate of this node has expired at ${this.#current.expiresAt.toISOString()}`;
    return this.#trouble;
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async look(): Promise<void> {
    const { logger, onChange } = this.#options;
    try {
      const found = await loadCertificates(this.#options);
      if (!isSame(found, this.#current)) {
        await onChange(found);
        this.#current = found;
        logger.info({ expires: found.expiresAt.toISOString() }, 'the boundary uses new certificates');
      }
      this.#trouble = undefined;
    } catch (error) {
      const trouble = messageOf(error);
      if (trouble !== this.#trouble)
        logger.warn(
          { error: trouble },
          'new certificates cannot be used; the boundary goes on with those it has',
        );
      this.#trouble = trouble;
      if (!(error instanceof TallymanError)) throw error;
    }
  }

  async #run(stopping: AbortSignal): Promise<void> {
    const { everyMs = 2000 } = this.#options;
    while (!stopping.aborted) {
      await pause(everyMs, stopping);
      if (!stopping.aborted) await this.look().catch(() => {});
    }
  }
}

const isSame = (a: TlsMaterial, b: TlsMaterial): boolean =>
  a.cert === b.cert && a.key === b.key && a.ca === b.ca;
