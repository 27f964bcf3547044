import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:https';
import { createSecureContext } from 'node:tls';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { Logger } from '../engine/logger.ts';

export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/** Certificate and key as they were read. */
export interface Certificate {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/** Throws BAD_CONFIG where the files cannot be read or do not belong together. */
export async function loadCertificate({ certFile, keyFile }: TlsFiles): Promise<Certificate> {
  const [cert, key] = await Promise.all([
    read('server.tlsCertFile', certFile),
    read('server.tlsKeyFile', keyFile),
  ]);
  try {
    createSecureContext({ cert, key, minVersion });
  } catch (error) {
    throw new TallymanError(
      'BAD_CONFIG',
      `the certificate ${certFile} (server.tlsCertFile) and the key ${keyFile} (server.tlsKeyFile) cannot be used: ${messageOf(error)}`,
    );
  }
  return { cert, key };
}

export const minVersion = 'TLSv1.2';

async function read(key: string, file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new TallymanError('BAD_CONFIG', `${key} cannot be read: ${messageOf(error)}`);
  }
}

/**
 * Uses a renewed certificate for new connections, without a restart. Throws while the files do not fit together, as in the middle
 * of a renewal; the server then keeps the one it has.
 */
export class CertificateRenewal {
  readonly #server: Pick<Server, 'setSecureContext'>;
  readonly #files: TlsFiles;
  readonly #logger: Logger;
  #used: string;

  constructor(
    server: Pick<Server, 'setSecureContext'>,
    files: TlsFiles,
    current: Certificate,
    logger: Logger,
  ) {
    this.#server = server;
    this.#files = files;
    this.#used = fingerprintOf(current);
    this.#logger = logger;
  }

  async look(): Promise<void> {
    const found = await loadCertificate(this.#files);
    if (fingerprintOf(found) === this.#used) return;
    this.#server.setSecureContext({ ...found, minVersion });
    this.#used = fingerprintOf(found);
    this.#logger.info({ certFile: this.#files.certFile }, 'the server uses the renewed certificate');
  }
}

const fingerprintOf = ({ cert, key }: Certificate): string =>
  createHash('sha256').update(cert).update('\0').update(key).digest('hex');
