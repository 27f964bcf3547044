import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { admin } from './admin.ts';
import { listLabels, pushAccepted, pushRefused, type ReadPush, readPush } from './aims.ts';
import { Chance } from './chance.ts';
import { bodyOf, json, Refused, type Reply, send, withMishap } from './exchange.ts';
import { faultFor } from './labels.ts';
import { listTags, readUpload, uploadAccepted, uploadRefused } from './openepaperlink.ts';
import type { SimulatorSettingsInput } from './settings.ts';
import { Simulation } from './simulation.ts';

export type { AcceptedImage } from './labels.ts';
export {
  evenFaults,
  type FaultKind,
  type SimulatorSettings,
  type SimulatorSettingsInput,
} from './settings.ts';
export type { SimulatorCounts } from './simulation.ts';

export interface LabelSimulatorOptions extends SimulatorSettingsInput {
  /** 0: any free one. */
  readonly port?: number;
  readonly host?: string;
  /** With the same seed, the nth image of a label always has the same outcome. */
  readonly seed?: number;
}

export interface LabelSimulator extends AsyncDisposable {
  /** What a gateway's `url` is set to, for either kind of gateway. */
  readonly url: string;
  readonly simulation: Simulation;
  close(): Promise<void>;
}

/**
 * Starts a simulated gateway: it answers as AIMS does, and as an access point with OpenEPaperLink, and keeps what it was
 * sent. `GET /simulator/labels/{mac}` lists every image it accepted for one label, in order.
 *
 * @example
 * await using simulator = await startLabelSimulator({ faults: evenFaults(0.05), latency: { minMs: 1, maxMs: 20 } });
 * const gateway = createGateway({ kind: 'aims', url: simulator.url, company: 'c', store: 's', username: 'u', password: 'p', timeoutMs: 2000 });
 */
export async function startLabelSimulator(options: LabelSimulatorOptions = {}): Promise<LabelSimulator> {
  const { port = 0, host = '127.0.0.1', seed = 1, ...settings } = options;
  const simulation = new Simulation(seed, settings);
  const server = createServer((request, response) => {
    // Either side may reset a connection: that is one of the simulated faults.
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    handle(simulation, request, response, seed).catch((error: unknown) => fail(response, error));
  });
  server.listen(port, host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  };
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return { url: `http://${name}:${address.port}`, simulation, close, [Symbol.asyncDispose]: close };
}

async function handle(
  simulation: Simulation,
  request: IncomingMessage,
  response: ServerResponse,
  seed: number,
): Promise<void> {
  const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://simulator');
  const method = request.method ?? 'GET';
  const body = await bodyOf(request);
  if (pathname === '/simulator' || pathname.startsWith('/simulator/'))
    return send(response, admin(simulation, method, pathname.split('/').slice(2).filter(Boolean), body));
  const call = { simulation, request, response, query, body };
  const nth = simulation.called();
  // SoluM's own cloud has /common before the path.
  switch (`${method} ${pathname.replace(/^\/common(?=\/api\/)/, '')}`) {
    case 'POST /api/v2/token':
      return other(call, `${seed} call ${nth}`, async () =>
        simulation.tokens.give(body, simulation.settings),
      );
    case 'GET /api/v2/common/labels':
      return other(call, `${seed} call ${nth}`, async () => {
        simulation.tokens.check(request.headers.authorization);
        return listLabels(simulation.labels, query);
      });
    case 'POST /api/v2/common/labels/image':
      simulation.tokens.check(request.headers.authorization);
      return image(call, readPush(query, body), pushAccepted, pushRefused);
    case 'GET /get_db':
      return other(call, `${seed} call ${nth}`, async () => listTags(simulation.labels, query));
    case 'POST /imgupload':
      return image(
        call,
        await readUpload(simulation.labels, request.headers['content-type'], body),
        uploadAccepted,
        uploadRefused,
      );
    default:
      throw new Refused(json({ responseCode: '404', responseMessage: 'no such path' }, 404));
  }
}

interface ApiCall {
  readonly simulation: Simulation;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

async function image(
  { simulation, request, response }: ApiCall,
  push: ReadPush,
  accepted: () => Reply,
  refused: (mac: string) => Refused,
): Promise<void> {
  const { labels, settings } = simulation;
  if (!settings.takesAnyLabel && !labels.get(push.mac)) throw refused(push.mac);
  const label = labels.register(push.mac);
  const chance = labels.chance(label);
  const fault = label.settings.fault ?? faultFor(settings.faults, chance);
  if (fault) simulation.wentWrong(fault);
  await withMishap({ request, response, settings, chance, fault }, async () => {
    labels.accept(label, push, settings, chance);
    return accepted();
  });
}

/** Calls for tokens and lists can fail, too; they belong to no label. */
async function other(
  { simulation, request, response }: ApiCall,
  draws: string,
  answer: () => Promise<Reply>,
): Promise<void> {
  const { settings } = simulation;
  const chance = new Chance(draws);
  const fault = faultFor(settings.faults, chance);
  if (fault) simulation.wentWrong(fault);
  await withMishap({ request, response, settings, chance, fault }, answer);
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) return;
  if (error instanceof Refused) send(response, error.reply);
  else
    send(
      response,
      json({ responseCode: '500', responseMessage: `the simulator failed: ${String(error)}` }, 500),
    );
}
