import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { type Network, realNetwork } from '../../../src/network/network.ts';
import { until } from '../../support/engine.ts';
import { webhookScene } from './support/scene.ts';

function certificateFor(name: string): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'tallyman-tls-'));
  try {
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    const made = spawnSync('openssl', [
      ...[
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2',
      ],
      ...['-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name}`, '-keyout', key, '-out', cert],
    ]);
    if (made.error) throw new Error(`openssl is needed for this test: ${made.error.message}`);
    return { key: readFileSync(key), cert: readFileSync(cert) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('WH-7: over TLS the checked address is connected to, while host header, SNI and certificate are by the name', async () => {
  const scene = await webhookScene();
  const { key, cert } = certificateFor('hooks.test');
  const seen: unknown[] = [];
  const server = createServer({ key, cert }, (request, response) => {
    seen.push([request.headers.host, (request.socket as TLSSocket & { servername?: string }).servername]);
    response.end();
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const network: Network = { ...realNetwork({ ca: [cert] }), resolve: async () => ['127.0.0.1'] };
  await scene.webhooks.add({ url: `https://hooks.test:${port}/`, maxAttempts: 1 });
  await scene.webhooks.add({ url: `https://other.test:${port}/`, maxAttempts: 1 });
  await scene.emit('a');
  await scene.deliver({ network, policy: { allowPrivate: ['127.0.0.1/32'] } });
  await until('both were tried', async () => (await scene.webhooks.attempts()).items.length === 2);
  expect(seen).toEqual([[`hooks.test:${port}`, 'hooks.test']]);
  const { items } = await scene.webhooks.attempts();
  expect(items.map(({ status, errorCode }) => [status, errorCode]).sort()).toEqual([
    ['FAILED', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['SUCCEEDED', null],
  ]);
});
