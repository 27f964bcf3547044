import type { ChildProcess } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { end, findProgram, firstBytes, freePorts, launch, Service, temporaryFolder } from './service.ts';

/** A private RabbitMQ node, not started yet; a start takes five to ten seconds. User and password: guest. */
export async function privateRabbitmq(): Promise<Service> {
  const [port = 0, distPort = 0, epmdPort = 0] = await freePorts(3);
  const folder = await temporaryFolder('rabbitmq');
  const [home, data, logs] = ['home', 'data', 'logs'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  await Promise.all([home, data, logs].map((path) => mkdir(path)));
  const env = {
    HOME: home,
    // Not the machine's port mapper: should there be none, Erlang would start one and leave it running.
    ERL_EPMD_PORT: String(epmdPort),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    // The script's word for "become the server" instead of staying its parent: our pid is the server's.
    detached: 'true',
    RABBITMQ_NODENAME: `tallyman-${port}@localhost`,
    RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distPort),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
    RABBITMQ_MNESIA_BASE: data,
    RABBITMQ_LOG_BASE: logs,
    RABBITMQ_LOGS: '-',
    RABBITMQ_PID_FILE: join(folder, 'pid'),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, 'plugins'),
    RABBITMQ_CONFIG_FILE: join(folder, 'rabbitmq'),
    RABBITMQ_CONF_ENV_FILE: '/dev/null',
  };
  return new RabbitmqService({
    name: 'rabbitmq-server',
    debianPackage: 'rabbitmq-server',
    // Not Debian's wrapper in /usr/sbin, which changes user and folder, but the script that it calls.
    program: '/usr/lib/rabbitmq/bin/rabbitmq-server',
    args: [],
    env,
    port,
    folder,
    url: `amqp://guest:guest@127.0.0.1:${port}`,
    ready: async () => (await firstBytes(port, 'AMQP\0\0\x09\x01')) !== undefined,
  });
}

/** A node needs a port mapper (epmd) beside it, for as long as it lives. */
class RabbitmqService extends Service {
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  #epmd: ChildProcess | undefined;

  constructor(options: ConstructorParameters<typeof Service>[0]) {
    super(options);
    this.#folder = options.folder;
    this.#env = options.env ?? {};
  }

  override async start(): Promise<void> {
    if (this.#epmd === undefined) {
      const epmd = findProgram('epmd', 'erlang-base');
      const args = ['-port', this.#env.ERL_EPMD_PORT ?? '', '-address', '127.0.0.1'];
      this.#epmd = launch(epmd, args, { folder: this.#folder });
    }
    await super.start();
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    if (this.#epmd !== undefined) await end(this.#epmd, 'SIGKILL');
    await super[Symbol.asyncDispose]();
  }
}
