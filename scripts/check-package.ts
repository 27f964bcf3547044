/**
 * Packs the package, installs it in an empty folder as a user would, and uses it there: the library through its
 * exports, the CLI through its bin.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folder = mkdtempSync(join(tmpdir(), 'tallyman-package-'));
const run = (command: string, args: string[], cwd: string): string =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

try {
  const [packed] = JSON.parse(
    run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], process.cwd()),
  ) as { filename: string; files: { path: string }[] }[];
  if (!packed) throw new Error('npm pack answered nothing');
  const stray = packed.files.filter(({ path }) => /^(src|test|bench)\/|\.tsbuildinfo$/.test(path));
  if (stray.length > 0) throw new Error(`the package holds what it should not: ${stray[0]?.path}`);
  writeFileSync(join(folder, 'package.json'), '{"private": true, "type": "module"}');
  run(
    'npm',
    ['install', '--omit=optional', '--no-audit', '--no-fund', join(folder, packed.filename)],
    folder,
  );
  writeFileSync(
    join(folder, 'use.ts'),
    `import { defineKind, Tallyman } from 'tallyman';
     const kind = defineKind<{ n: number }>({ name: 'k', handler: ({ n }) => n });
     await Tallyman.open({ databaseUrl: 'postgres://127.0.0.1:1/none' }).catch((error: Error) => {
       if (!error.message.startsWith('Cannot reach PostgreSQL')) throw error;
     });
     console.log(kind.name);`,
  );
  if (run(process.execPath, ['use.ts'], folder).trim() !== 'k')
    throw new Error('the library does not work as installed');
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    exports: Record<string, unknown>;
  };
  for (const name of Object.keys(exports).filter((path) => !path.endsWith('.json'))) {
    const specifier = `tallyman${name.slice(1)}`;
    const script = `if (Object.keys(await import('${specifier}')).length === 0) throw new Error('it exports nothing')`;
    run(process.execPath, ['--input-type=module', '--eval', script], folder);
  }
  const help = run(join(folder, 'node_modules/.bin/tallyman'), ['--help'], folder);
  if (!help.includes('dead-letters')) throw new Error('the CLI does not work as installed');
  const preview = spawnSync(join(folder, 'node_modules/.bin/tallyman'), ['labels', 'preview', '--sheet'], {
    cwd: folder,
    encoding: 'utf8',
  });
  if (preview.status === 0 || !preview.stderr.includes('npm install --include=optional'))
    throw new Error(`without resvg the CLI does not say what to install: ${preview.stderr}`);
  console.log(`package: ${packed.files.length} files, library and CLI work as installed`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
