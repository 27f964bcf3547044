import { spawn } from 'node:child_process';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { inRoot, node, scratch } from '../cli/support.ts';
import { until } from '../support/engine.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { privateMosquitto } from '../support/services/mosquitto.ts';
import { freePorts } from '../support/services/service.ts';

/** The commands below the mark, one a line. */
async function commands(page: string): Promise<string[]> {
  const [, block = ''] =
    /<!-- walk-through -->\n```sh\n([\s\S]*?)```/.exec(await readFile(inRoot(page), 'utf8')) ?? [];
  return block.split('\n').filter((line) => line.trim() !== '');
}

test('docs/mqtt.md: the walk-through runs, command by command', { timeout: 300_000 }, async () => {
  const lines = await commands('docs/mqtt.md');
  expect(lines.length).toBeGreaterThan(15);
  const broker = await privateMosquitto();
  onTestFinished(() => broker[Symbol.asyncDispose]());
  await broker.start();
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const [port = 0] = await freePorts(1);
  const cwd = await scratch();
  await writeFile(join(cwd, 'tallyman'), `#!/bin/sh\nexec "${node}" "${inRoot('src/cli/main.ts')}" "$@"\n`);
  await chmod(join(cwd, 'tallyman'), 0o755);
  const env = {
    PATH: `${cwd}:${process.env.PATH}`,
    NO_COLOR: '1',
    DATABASE_URL: url,
    TALLYMAN_PORT: String(port),
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
  };
  const exports: string[] = [];
  const run = (line: string) => {
    const child = spawn('bash', ['-c', [...exports, line].join('\n')], { cwd, env });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    const ended = new Promise<{ code: number | null; output: string }>((done) =>
      child.on('close', (code) => done({ code, output })),
    );
    return { child, ended };
  };
  for (const written of lines) {
    const line = written.replaceAll('1883', String(broker.port)).replaceAll(':8420', `:${port}`);
    if (line.startsWith('export ')) exports.push(line);
    else if (/&(\s+#.*)?$/.test(line)) {
      const { child, ended } = run(line.replace(/^/, 'exec ').replace(/&(\s+#.*)?$/, ''));
      onTestFinished(async () => {
        child.kill('SIGTERM');
        await ended;
      });
      await until('it serves', async () => {
        const answer = await fetch(`http://127.0.0.1:${port}/v1/health/ready`).catch(() => undefined);
        return answer?.status === 200;
      });
    } else {
      // What a reader sent is there a moment later.
      let last = { code: null as number | null, output: '' };
      await until(line, async () => {
        last = await run(line).ended;
        return last.code === 0;
      }).catch(() => expect({ line, ...last }).toMatchObject({ code: 0 }));
    }
  }
  const shown = async (line: string) => (await run(line).ended).output;
  expect(await shown('tallyman rfid baskets list')).toContain('dock 1');
  await until('the shipment has left', async () =>
    (await shown('tallyman rfid shipments show S-1')).includes('SHIPPED'),
  );
  const document = JSON.parse(await readFile(join(cwd, 'movements.jsonld'), 'utf8'));
  expect(document.epcisBody.eventList).toHaveLength(1);
  expect(await shown('tallyman iot devices show dock-7')).toContain('return-door');
});
