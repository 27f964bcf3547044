import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

/** Runs the audit of this package against a registry. */
async function audit(registry: string): Promise<{ code: number | null; output: string }> {
  // npm keeps advisories: these must not come up in another run.
  const cache = await mkdtemp(join(tmpdir(), 'tallyman-audit-'));
  onTestFinished(() => rm(cache, { recursive: true, force: true }));
  const child = spawn(process.execPath, ['scripts/audit.ts'], {
    cwd: root,
    env: { ...process.env, NODE_OPTIONS: '', npm_config_registry: registry, npm_config_cache: cache },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  const [code] = await once(child, 'close');
  return { code, output };
}

/** A registry that knows these advisories and nothing else. */
async function registryWith(advisories: object): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    const isAudit = request.url?.endsWith('/security/advisories/bulk');
    response.writeHead(isAudit ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isAudit ? advisories : {}));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

test('a high-severity vulnerability of what users install fails', async () => {
  const advisory = { id: 1, url: 'https://example.com/1', title: 'it leaks', vulnerable_versions: '<999' };
  const { code, output } = await audit(await registryWith({ pg: [{ ...advisory, severity: 'high' }] }));
  expect([code, output]).toEqual([1, expect.stringContaining('high: pg')]);
});

test('a registry that does not answer is said, and fails nothing', async () => {
  const { code, output } = await audit('http://127.0.0.1:9/');
  expect([code, output]).toEqual([0, expect.stringContaining('not checked')]);
});
