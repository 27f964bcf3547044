import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { expect, test } from 'vitest';
import { importsOf, readSource } from '../../../support/sources.ts';

const root = join(import.meta.dirname, '../../../..');

/** Everything that a module imports, directly or not: files of ours, and names of packages. */
function reached(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const from of importsOf(readSource(path)))
    if (from.startsWith('.')) reached(posix.join(posix.dirname(path), from), seen);
    else seen.add(from);
  return seen;
}

test('BND-14: the SDK is an export of the package, and needs neither the server nor PostgreSQL', () => {
  const { exports, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, { default: string }>;
    dependencies: Record<string, string>;
  };
  const entry = exports['./boundary']?.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts') ?? '';
  expect(entry).toBe('src/apps/boundary/sdk/index.ts');
  const all = [...reached(entry)];
  const packages = all.filter((name) => !name.startsWith('src/') && !name.startsWith('node:'));
  expect(packages.map((name) => name.split('/').slice(0, 2).join('/')).sort()).toEqual(
    expect.arrayContaining(['@bufbuild/protobuf', '@connectrpc/connect', '@connectrpc/connect-node']),
  );
  for (const name of packages)
    expect(Object.keys(dependencies).some((each) => name.startsWith(each))).toBe(true);
  expect(packages.filter((name) => !/^@(bufbuild|connectrpc)\//.test(name))).toEqual([]);
  const ours = all.filter((name) => name.startsWith('src/'));
  expect(ours.length).toBeGreaterThan(20);
  expect(ours.filter((path) => /\/(rpc|store|objects|handoff|database|server|host)\//.test(path))).toEqual(
    [],
  );
});
