import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import type { TlsMaterial } from '../../../../src/apps/boundary/rpc/server.ts';

x509.cryptoProvider.set(webcrypto);

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const day = 24 * 3_600_000;

export interface Issued {
  readonly key: string;
  readonly cert: string;
}

export interface IssueOptions {
  /** URIs as alternative names. */
  readonly uris?: readonly string[];
  readonly commonName?: string;
  readonly notAfter?: Date;
}

/** A certificate authority for tests. */
export class TestAuthority {
  readonly ca: string;
  readonly #keys: webcrypto.CryptoKeyPair;
  readonly #certificate: x509.X509Certificate;
  #serial = 1;

  private constructor(keys: webcrypto.CryptoKeyPair, certificate: x509.X509Certificate) {
    this.#keys = keys;
    this.#certificate = certificate;
    this.ca = certificate.toString('pem');
  }

  static async make(): Promise<TestAuthority> {
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: '01',
      name: 'CN=test authority',
      notBefore: new Date(Date.now() - day),
      notAfter: new Date(Date.now() + day),
      keys,
      signingAlgorithm: algorithm,
      extensions: [new x509.BasicConstraintsExtension(true, 1, true)],
    });
    return new TestAuthority(keys, certificate);
  }

  async issue({ uris = [], commonName = 'test', notAfter }: IssueOptions = {}): Promise<Issued> {
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
    this.#serial += 1;
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: this.#serial.toString(16).padStart(4, '0'),
      subject: `CN=${commonName}`,
      issuer: this.#certificate.subject,
      notBefore: new Date(Date.now() - 2 * day),
      notAfter: notAfter ?? new Date(Date.now() + day),
      publicKey: keys.publicKey,
      signingKey: this.#keys.privateKey,
      signingAlgorithm: algorithm,
      extensions: [
        new x509.SubjectAlternativeNameExtension([
          { type: 'dns', value: 'localhost' },
          { type: 'ip', value: '127.0.0.1' },
          ...uris.map((value) => ({ type: 'url' as const, value })),
        ]),
      ],
    });
    const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64');
    return {
      key: `-----BEGIN PRIVATE KEY-----\n${pkcs8}\n-----END PRIVATE KEY-----\n`,
      cert: certificate.toString('pem'),
    };
  }

  async server(): Promise<TlsMaterial> {
    return { ...(await this.issue({ commonName: 'node' })), ca: this.ca };
  }
}
