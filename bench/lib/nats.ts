import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accepts, endWithUs, execute, freePort, stop, temporaryFolder } from './processes.ts';

/** A private NATS server with JetStream on files. */
export interface NatsServer {
  readonly url: string;
  stop(): Promise<void>;
}

const SETPRIV = '/usr/bin/setpriv';

/** The path of a server that has atomic batches; see scripts/newer-nats-server. */
export const natsProgram = async (): Promise<string> =>
  (await execute(join(import.meta.dirname, '..', '..', 'scripts', 'newer-nats-server'), [])).trim();

/** `syncAlways`: flushes to disk before it acknowledges. Without it the server flushes every two minutes. */
export async function startNats({ syncAlways }: { readonly syncAlways: boolean }): Promise<NatsServer> {
  const program = await natsProgram();
  const { path: home, remove: removeHome } = await temporaryFolder('tallyman-bench-nats-');
  const port = await freePort();
  const file = join(home, 'nats.conf');
  await writeFile(
    file,
    [
      `listen: "127.0.0.1:${port}"`,
      'jetstream {',
      `  store_dir: "${join(home, 'data')}"`,
      ...(syncAlways ? ['  sync_interval: always'] : []),
      '}',
      '',
    ].join('\n'),
  );
  // The measuring process is killed when it has answered; the server must not outlive it.
  const [command, ...args] = existsSync(SETPRIV) ? [SETPRIV, '--pdeathsig', 'KILL', program] : [program];
  const child = spawn(command as string, [...args, '-c', file], { cwd: home, stdio: 'ignore' });
  endWithUs(child);
  for (const deadline = Date.now() + 10_000; !(await accepts(port)); await sleep(20))
    if (child.exitCode !== null || Date.now() > deadline) throw new Error('nats-server did not start');
  return {
    url: `nats://127.0.0.1:${port}`,
    async stop() {
      await stop(child, 'SIGTERM');
      removeHome();
    },
  };
}
