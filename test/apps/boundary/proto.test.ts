import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';

const root = join(import.meta.dirname, '../../..');
const generated = 'tallyman/boundary/v1/boundary_pb.ts';

async function buf(...args: string[]): Promise<void> {
  const bin = join(root, 'node_modules/.bin');
  await promisify(execFile)(join(bin, 'buf'), args, {
    cwd: join(root, 'proto'),
    env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` },
  });
}

test('BND-1: the proto file passes the linter, and the committed code is what it generates', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-proto-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await buf('lint');
  const template = await readFile(join(root, 'proto/buf.gen.yaml'), 'utf8');
  await buf('generate', '--template', JSON.stringify(intoFolder(template, folder)));
  const [fresh, committed] = await Promise.all([
    readFile(join(folder, generated), 'utf8'),
    readFile(join(root, 'src/apps/boundary/proto', generated), 'utf8'),
  ]);
  expect(committed, 'run `npm run proto`').toBe(fresh);
});

/** The template as it is, but for where it writes. */
function intoFolder(template: string, out: string) {
  const opt = /opt: \[(.*)\]/.exec(template)?.[1]?.split(', ') ?? [];
  expect(opt.length).toBeGreaterThan(0);
  return { version: 'v2', plugins: [{ local: 'protoc-gen-es', out, opt }] };
}
