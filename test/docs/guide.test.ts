import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emptyDatabase } from '../support/postgres.ts';

const root = join(import.meta.dirname, '../..');
const guide = await readFile(join(root, 'docs/guide.md'), 'utf8');
const blocks = [...guide.matchAll(/^## (.+)$|^```ts\n([\s\S]*?)^```$/gm)].reduce<
  { title: string; code: string }[]
>((found, [, heading, code]) => {
  if (heading) found.push({ title: heading, code: '' });
  const last = found.at(-1);
  if (code && last?.code) found.push({ title: `${last.title}, continued`, code });
  else if (code && last) last.code = code;
  return found;
}, []);

const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, { default: string }>;
};

/** Blocks import the package as users do; here it is not built. */
const fromSources = (code: string): string =>
  code.replace(/(?<= from ')tallyman(\/[\w-]+)(?=';)/g, (name, path: string) => {
    const built = exports[`.${path}`]?.default;
    return built ? join(root, built.replace('./dist/', 'src/').replace(/\.js$/, '.ts')) : name;
  });

// Inside the repository, so that the blocks find the packages and the types they name.
let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(import.meta.dirname, '.guide-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const preamble = `
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { defineKind, firstChain, nextChain, PermanentError, RetryLater, silentLogger, Tallyman } from ${JSON.stringify(join(root, 'src/index.ts'))};
const until = async (so) => {
  for (let i = 0; i < 6000; i += 1) { if (await so()) return; await sleep(10); }
  throw new Error('waited in vain');
};
const tallyman = await Tallyman.open({ databaseUrl: process.env.DATABASE_URL, migrate: true });
`;

describe('docs/guide.md does what it says', () => {
  for (const [i, { title, code }] of blocks.filter((block) => block.code).entries())
    test(title, async () => {
      const { url, drop } = await emptyDatabase();
      const file = join(folder, `block-${i}.ts`);
      await writeFile(
        file,
        `${preamble}${fromSources(code)}\nawait tallyman.close();\nconsole.log('reached the end');\n`,
      );
      try {
        const env = { ...process.env, DATABASE_URL: url };
        const { stdout } = await promisify(execFile)(process.execPath, [file], { env });
        expect(stdout).toContain('reached the end');
      } finally {
        await drop();
      }
    });
});
