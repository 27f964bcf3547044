import { posix } from 'node:path';
import { expect, test } from 'vitest';
import { importsOf, readSource, sourcesOf } from './support/sources.ts';

/*
 * Which part of `src` may import which. Arrows point one way: what is below knows nothing of what is above.
 *
 * A rule's paths are beginnings: `engine/` is all of it, `host/route.ts` that file.
 */

/** Of the host: what an app is made of. The rest of it puts apps together. */
const hostInterface = [
  'host/app.ts',
  'host/demo.ts',
  'host/route.ts',
  'host/roles.ts',
  'host/timeline.ts',
  'host/cli/',
  'host/process/signals.ts',
  'host/process/secrets.ts',
  'host/process/production.ts',
];
/** What every app stands on. */
const ground = [
  'engine/',
  'events/',
  'config/key.ts',
  'config/keys.ts',
  'secrets/',
  'network/',
  'given.ts',
  ...hostInterface,
];
/** Everything that serves apps without knowing any. */
const frame = [
  'engine/',
  'events/',
  'config/',
  'secrets/',
  'network/',
  'observability/',
  'host/',
  'server/',
  'cli/',
  'given.ts',
];

const rules: Readonly<Record<string, readonly string[]>> = {
  'engine/': [],
  'events/': ['engine/'],
  'secrets/': ['engine/'],
  'network/': ['engine/'],
  'given.ts': [],
  'index.ts': ['engine/'],
  'adapters/': ['engine/'],
  'config/': ['engine/'],
  'observability/': ['engine/'],
  'simulate/': ['engine/'],
  // Apps know nothing of each other, but for those they are built upon.
  'apps/': ground,
  'apps/rfid/': [...ground, 'apps/iot/index.ts', 'apps/iot/mqtt/index.ts', 'simulate/'],
  // What an app is made of knows nothing of those who put apps together.
  ...Object.fromEntries(hostInterface.map((path) => [path, [...ground, 'config/']])),
  // This one names the apps.
  'host/apps.ts': [...frame, 'apps/'],
  'host/': frame,
  'server/': frame,
  'cli/': frame,
  'demo/': frame,
};

/** The rule that names the path most exactly. */
const ruleOf = (path: string): string | undefined =>
  Object.keys(rules)
    .filter((part) => path.startsWith(part))
    .sort((a, b) => b.length - a.length)[0];

/** `apps/iot/`, `server/`: within it, everything may import everything. */
const partOf = (path: string): string => /^(?:apps\/)?[^/]+\/?/.exec(path)?.[0] ?? path;

/** What a file imports against its rule. */
function violations(path: string, source: string): string[] {
  const rule = ruleOf(path);
  if (rule === undefined) return ['something, and is in no part that has a rule'];
  const allowed = [partOf(path), ...(rules[rule] ?? [])];
  const imported = importsOf(source)
    .filter((from) => from.startsWith('.'))
    .map((from) => posix.join(posix.dirname(path), from));
  return [...new Set(imported)].filter((to) => !allowed.some((part) => to.startsWith(part))).sort();
}

test('every part imports only what lies below it', () => {
  const sources = sourcesOf('.ts').map((path) => path.slice('src/'.length));
  expect(sources.length).toBeGreaterThan(200);
  const found = sources
    .map((path) => [path, violations(path, readSource(`src/${path}`))] as const)
    .filter(([, imported]) => imported.length > 0);
  expect(Object.fromEntries(found)).toEqual({});
});

test('it would be found', () => {
  const of = (path: string, to: string): number => violations(path, `import { a } from '${to}';`).length;
  expect(of('engine/jobs/x.ts', '../database/database.ts')).toBe(0);
  expect(of('engine/jobs/x.ts', '../../events/index.ts')).toBe(1);
  expect(of('apps/rfid/x.ts', '../iot/index.ts')).toBe(0);
  expect(of('apps/rfid/x.ts', '../iot/places.ts')).toBe(1);
  expect(of('apps/iot/x.ts', '../rfid/index.ts')).toBe(1);
  expect(of('apps/labels/x.ts', '../../host/route.ts')).toBe(0);
  expect(of('apps/labels/x.ts', '../../host/serve.ts')).toBe(1);
  expect(of('server/x.ts', '../apps/iot/index.ts')).toBe(1);
  expect(of('host/serve.ts', '../apps/iot/index.ts')).toBe(1);
  expect(of('host/apps.ts', '../apps/iot/app.ts')).toBe(0);
  expect(of('host/route.ts', '../server/http/body.ts')).toBe(1);
  expect(of('demo/x.ts', '../apps/rfid/index.ts')).toBe(1);
  expect(
    violations('engine/x.ts', `export type { A } from '../server/a.ts'; import('../cli/b.ts');`),
  ).toEqual(['cli/b.ts', 'server/a.ts']);
  expect(violations('new/x.ts', '')).toHaveLength(1);
});
