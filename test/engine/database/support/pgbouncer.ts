import { chmod, chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { findProgram, freePorts, Service, temporaryFolder } from '../../../support/services/service.ts';

const nobody = 65_534;

/** A private PgBouncer before the database of `url`, not started yet. It refuses to run as root. */
export async function privatePgbouncer(
  url: string,
  poolMode: 'session' | 'transaction',
  poolSize = 5,
): Promise<Service> {
  const [port = 0] = await freePorts(1);
  const folder = await temporaryFolder('pgbouncer');
  const config = join(folder, 'pgbouncer.ini');
  const { hostname, port: serverPort, username, password, pathname } = new URL(url);
  const login = `user=${decodeURIComponent(username)} password=${decodeURIComponent(password)}`;
  await writeFile(
    config,
    `[databases]
* = host=${hostname} port=${serverPort} ${login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = ${poolMode}
default_pool_size = ${poolSize}
`,
    { mode: 0o600 },
  );
  const program = findProgram('pgbouncer', 'pgbouncer');
  const asRoot = process.geteuid?.() === 0;
  if (asRoot) {
    await chmod(folder, 0o755);
    await chown(config, nobody, nobody);
  }
  const account = [`--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups'];
  const through = `postgres://anybody@127.0.0.1:${port}${pathname}`;
  return new Service({
    name: 'pgbouncer',
    debianPackage: asRoot ? 'util-linux' : 'pgbouncer',
    program: asRoot ? 'setpriv' : program,
    // To change the account is to forget the order to end with us; so it is given again.
    args: asRoot ? [...account, '--pdeathsig', 'KILL', program, config] : [config],
    port,
    folder,
    url: through,
    ready: async () => {
      const client = new pg.Client({ connectionString: through });
      await client.connect();
      await client.end();
      return true;
    },
  });
}
