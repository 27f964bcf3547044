import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { loadCertificate } from '../../src/server/tls.ts';
import { TestAuthority } from '../apps/boundary/rpc/certificates.ts';
import { start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { server } from './support.ts';

async function certificates() {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-tls-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const authority = await TestAuthority.make();
  const [certFile, keyFile] = [join(folder, 'server.pem'), join(folder, 'server.key')];
  const renew = async (): Promise<void> => {
    const { cert, key } = await authority.issue();
    await writeFile(certFile, cert);
    await writeFile(keyFile, key);
  };
  await renew();
  return { authority, certFile, keyFile, renew };
}

/** Status of the answer, and the serial number of the certificate; every time on a connection of its own. */
const ask = (url: string, ca: string, maxVersion?: 'TLSv1.1') =>
  new Promise<{ status: number | undefined; serial: string }>((resolve, reject) => {
    const options = {
      ca,
      checkServerIdentity: () => undefined,
      agent: false,
      ...(maxVersion && { maxVersion, minVersion: maxVersion }),
    } as const;
    request(`${url}/v1/health/live`, options, (response) => {
      const { serialNumber } = (response.socket as TLSSocket).getPeerCertificate();
      response.resume().on('end', () => resolve({ status: response.statusCode, serial: serialNumber }));
    })
      .on('error', reject)
      .end();
  });

test('SEC-8: with a certificate the server speaks https alone, and uses a renewed one without a restart', async () => {
  const { authority, certFile, keyFile, renew } = await certificates();
  const scene = await server({ config: { 'server.tlsCertFile': certFile, 'server.tlsKeyFile': keyFile } });
  expect(scene.url).toMatch(/^https:/);
  const first = await ask(scene.url, authority.ca);
  expect(first.status).toBe(200);
  await expect(fetch(scene.url.replace('https', 'http'))).rejects.toThrow();
  await expect(ask(scene.url, (await TestAuthority.make()).ca)).rejects.toThrow();
  await expect(ask(scene.url, authority.ca, 'TLSv1.1')).rejects.toThrow();
  await writeFile(certFile, 'half of a certificate');
  expect(await ask(scene.url, authority.ca)).toEqual(first);
  await renew();
  await until(
    'the new one is in use',
    async () => (await ask(scene.url, authority.ca)).serial !== first.serial,
  );
});

test('SEC-8: open connections do not hold up a server with TLS that stops', async () => {
  const { authority, certFile, keyFile } = await certificates();
  const scene = await server({ config: { 'server.tlsCertFile': certFile, 'server.tlsKeyFile': keyFile } });
  const { port } = new URL(scene.url);
  const silent = connect({
    port: Number(port),
    host: '127.0.0.1',
    ca: authority.ca,
    checkServerIdentity: () => undefined,
  });
  const ended = new Promise<void>((resolve) => {
    silent.on('close', () => resolve());
  });
  silent.on('error', () => {});
  await new Promise<void>((resolve) => {
    silent.on('secureConnect', () => resolve());
  });
  await scene.server.stop();
  await ended;
});

test('SEC-8: a certificate without its key, or with another one, is refused at the start', async () => {
  const [{ certFile, keyFile }, other] = [await certificates(), await certificates()];
  await expect(loadCertificate({ certFile, keyFile: other.keyFile })).rejects.toThrow(
    /server.tlsCertFile.*cannot be used/,
  );
  await expect(loadCertificate({ certFile, keyFile: `${keyFile}.missing` })).rejects.toThrow(
    /server.tlsKeyFile cannot be read/,
  );
  const { url } = await emptyDatabase();
  const env = {
    DATABASE_URL: url,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
    TALLYMAN_TLS_CERT_FILE: certFile,
  };
  const refused = await start('src/cli/main.ts', ['serve', '--only', 'api', '--migrate', '--port', '0'], {
    env,
  }).ended;
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('server.tlsCertFile and server.tlsKeyFile belong together');
});
