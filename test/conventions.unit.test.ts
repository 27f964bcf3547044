import { execFileSync, spawn } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { dirname, join, relative } from 'node:path';
import pg from 'pg';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '..');

/** What the modules of tests import, and where from. Types are gone when a test runs. */
function importsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  const all = text.matchAll(/^(?:import|export)\s+(?!type\b)(?:[^'"]*?\bfrom\s+)?['"]([^'"]+)['"]/gm);
  return [...all].map(([, path = '']) => (path.startsWith('.') ? join(dirname(file), path) : path));
}

/** Everything that a test imports from the folder `test`, directly or not, and what those import from elsewhere. */
function reached(file: string, seen = new Set<string>()): Set<string> {
  for (const path of importsOf(file)) {
    if (seen.has(path)) continue;
    seen.add(path);
    if (path.startsWith(join(root, 'test/'))) reached(path, seen);
  }
  return seen;
}

const startsServices = [
  'test/support/engine.ts',
  'test/support/global-setup.ts',
  'test/support/postgres.ts',
  'test/support/services/service.ts',
  'src/engine/database/embedded/embedded.ts',
  'src/engine/database/embedded/index.ts',
].map((path) => join(root, path));

const unitTests = globSync('test/**/*.unit.test.ts', { cwd: root }).map((path) => join(root, path));

describe('unit tests need nothing but Node', () => {
  test('there are some, and files that are looked for exist', () => {
    expect(unitTests.length).toBeGreaterThan(20);
    for (const path of startsServices) expect(readFileSync(path, 'utf8')).not.toBe('');
  });

  test.each(unitTests.map((path) => relative(root, path)))(
    '%s imports nothing that starts a service',
    (path) => {
      const all = reached(join(root, path));
      expect(startsServices.filter((forbidden) => all.has(forbidden))).toEqual([]);
    },
  );

  test('a test with services is recognized as one', () => {
    const all = reached(join(root, 'test/engine/jobs/claim.test.ts'));
    expect(all).toContain(join(root, 'test/support/postgres.ts'));
  });

  test('what starts a process, connects or listens fails', async () => {
    expect(() => spawn('true')).toThrow('a unit test started a process');
    expect(() => execFileSync('true')).toThrow('a unit test started a process');
    expect(() => connect(1)).toThrow('a unit test opened a connection');
    expect(() => createServer().listen(0)).toThrow('a unit test listened');
    const client = new pg.Client('postgres://127.0.0.1:1/none');
    await expect(client.connect()).rejects.toThrow('a unit test opened a connection');
  });
});

test('random numbers come from a seed, which a test that fails prints', () => {
  const unseeded = ['Math', 'random'].join('.');
  const files = globSync('test/**/*.ts', { cwd: root });
  expect(files.filter((path) => readFileSync(join(root, path), 'utf8').includes(unseeded))).toEqual([]);
});
