import { firstBytes, freePorts, Service, temporaryFolder } from './service.ts';

/** A private Redis, not started yet; it keeps nothing over a restart. */
export async function privateRedis(): Promise<Service> {
  const [port = 0] = await freePorts(1);
  const folder = await temporaryFolder('redis');
  return new Service({
    name: 'redis-server',
    debianPackage: 'redis-server',
    program: 'redis-server',
    args: [
      '--bind',
      '127.0.0.1',
      '--port',
      String(port),
      '--dir',
      folder,
      '--save',
      '',
      '--appendonly',
      'no',
    ],
    port,
    folder,
    url: `redis://127.0.0.1:${port}`,
    ready: async () => (await firstBytes(port, 'PING\r\n'))?.startsWith('+PONG') === true,
  });
}
