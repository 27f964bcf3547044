import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { emptyDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/seeded-random.ts';

const program = fileURLToPath(new URL('./soak.ts', import.meta.url));

test('ENG-16, ENG-20: 40 seconds of mixed work with a worker killed every two seconds: nothing lost, late or out of order', {
  timeout: 500_000,
}, async () => {
  const { seed } = seededRandom();
  const { url, drop } = await emptyDatabase();
  const args = ['--minutes', '0.67', '--seed', String(seed), '--url', url];
  const soak = spawn(process.execPath, [program, ...args], {
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(async () => {
    soak.kill('SIGKILL');
    await drop();
  });
  let output = '';
  for (const stream of [soak.stdout, soak.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  const [code] = await once(soak, 'exit');
  console.info(output);
  expect(code, output).toBe(0);
});
