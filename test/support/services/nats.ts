import { firstBytes, freePorts, Service, temporaryFolder } from './service.ts';

/** A private NATS server, not started yet. */
export async function privateNats(login?: { user: string; password: string }): Promise<Service> {
  const [port = 0] = await freePorts(1);
  const folder = await temporaryFolder('nats');
  return new Service({
    name: 'nats-server',
    debianPackage: 'nats-server',
    program: 'nats-server',
    args: [
      ...['-a', '127.0.0.1', '-p', String(port)],
      ...(login === undefined ? [] : ['--user', login.user, '--pass', login.password]),
    ],
    port,
    folder,
    url: `nats://127.0.0.1:${port}`,
    ready: async () => (await firstBytes(port, ''))?.startsWith('INFO') === true,
  });
}
