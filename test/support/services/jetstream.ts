/** Private NATS servers with JetStream that flush every write to disk; new enough for atomic batches. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findProgram, freePorts, Service, temporaryFolder } from './service.ts';

/** Path of the server: it is fetched once if the system's own is too old. */
export async function newerNatsServer(): Promise<string> {
  const { stdout } = await promisify(execFile)('scripts/newer-nats-server');
  return stdout.trim();
}

export interface JetStreamServer {
  readonly service: Service;
  readonly name: string;
  readonly url: string;
  readonly monitorUrl: string;
}

export interface JetStreamServerOptions {
  readonly sync?: 'always' | '2m';
  readonly maxPayload?: string;
}

/** One server by itself, not started yet. */
export async function privateJetStream(options: JetStreamServerOptions = {}): Promise<JetStreamServer> {
  const [port = 0, monitor = 0] = await freePorts(2);
  return server('one', { host: '127.0.0.1', port, monitor }, '', options);
}

/** Three servers that know each other, on loopback, not started yet. */
export async function privateCluster(options: JetStreamServerOptions = {}): Promise<JetStreamServer[]> {
  const ports = await freePorts(9);
  const at = (i: number): number => ports[i] ?? 0;
  const places = [0, 1, 2].map((n) => ({
    host: '127.0.0.1',
    port: at(3 * n),
    monitor: at(3 * n + 1),
    route: at(3 * n + 2),
  }));
  return cluster(places, options);
}

/** The same, each server in a network namespace that the caller has made, by the address it has there. */
export function clusterIn(
  namespaces: readonly { readonly name: string; readonly address: string }[],
  options: JetStreamServerOptions = {},
): Promise<JetStreamServer[]> {
  const places = namespaces.map(({ name, address }) => ({
    host: address,
    port: 4222,
    monitor: 8222,
    route: 6222,
    namespace: name,
  }));
  return cluster(places, options);
}

interface Place {
  readonly host: string;
  readonly port: number;
  readonly monitor: number;
  readonly route?: number;
  readonly namespace?: string;
}

function cluster(places: readonly Place[], options: JetStreamServerOptions): Promise<JetStreamServer[]> {
  const routes = places.map(({ host, route }) => `"nats://${host}:${route}"`).join(', ');
  return Promise.all(
    places.map((place, i) =>
      server(
        `n${i + 1}`,
        place,
        `cluster { name: tallyman-test, listen: "${place.host}:${place.route}", routes: [${routes}] }`,
        options,
      ),
    ),
  );
}

async function server(
  name: string,
  { host, port, monitor, namespace }: Place,
  clusterConfig: string,
  { sync = 'always', maxPayload = '2MB' }: JetStreamServerOptions,
): Promise<JetStreamServer> {
  const folder = await temporaryFolder(`jetstream-${name}`);
  await writeFile(
    join(folder, 'server.conf'),
    `server_name: ${name}
listen: "${host}:${port}"
http: "${host}:${monitor}"
max_payload: ${maxPayload}
jetstream { store_dir: "${folder}", sync_interval: ${sync} }
${clusterConfig}
`,
  );
  const url = `nats://${host}:${port}`;
  const monitorUrl = `http://${host}:${monitor}`;
  const program = [
    ...(namespace === undefined ? [] : [findProgram('ip', 'iproute2'), 'netns', 'exec', namespace]),
    await newerNatsServer(),
    '-c',
    join(folder, 'server.conf'),
  ];
  const service = new Service({
    name: `nats-server ${name}`,
    debianPackage: 'nats-server',
    program: program[0] ?? '',
    args: program.slice(1),
    port,
    folder,
    url,
    ready: async () => (await fetch(`${monitorUrl}/healthz?js-enabled-only=true`)).ok,
  });
  return { service, name, url, monitorUrl };
}
