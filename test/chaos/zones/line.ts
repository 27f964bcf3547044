/** The line between two zones: a cable between two network namespaces, or a proxy on loopback where there is no right to make them. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../../../src/engine/errors.ts';
import { Bridge, canMakeNamespaces } from '../../support/network-namespaces.ts';
import type { Random } from '../../support/random.ts';
import { freePorts } from '../../support/services/service.ts';

export interface Line {
  /** What it is, for the output. */
  readonly kind: string;
  /** What goes before a command so that it runs in the zone's network. */
  readonly inPlant: readonly string[];
  readonly inEnterprise: readonly string[];
  /** Where the plant finds the enterprise, and where that listens. */
  readonly url: string;
  readonly listen: { readonly host: string; readonly port: number };
  /** Nothing passes until `heal`. */
  cut(random: Random): Promise<void>;
  /** What passes comes late, and some of it not at all, until `heal`. */
  disturb(random: Random): Promise<void>;
  heal(): Promise<void>;
  /** Packets lost so far, where they can be counted. */
  readonly lost: number | undefined;
  close(): Promise<void>;
}

/** TEST_ZONES_LINE=proxy: not the cable, also where there is the right. Says which one it is. */
export async function openLine(): Promise<Line> {
  const line = await cableOrProxy();
  console.info(`the line between the zones: ${line.kind}`);
  return line;
}

async function cableOrProxy(): Promise<Line> {
  if (process.env.TEST_ZONES_LINE === 'proxy') return LoopbackLine.open('TEST_ZONES_LINE says so');
  if (!canMakeNamespaces) return LoopbackLine.open('needs root on Linux');
  try {
    return await CableLine.open();
  } catch (error) {
    const message = messageOf(error);
    // Root of a container without CAP_NET_ADMIN or CAP_SYS_ADMIN. Anything else is a fault that a proxy would hide.
    if (!/not permitted|permission denied/i.test(message))
      throw new Error(
        `the network namespaces cannot be made (TEST_ZONES_LINE=proxy does without): ${message}`,
        {
          cause: error,
        },
      );
    return LoopbackLine.open(message.trim().replaceAll('\n', ' '));
  }
}

const port = 7443;

class CableLine implements Line {
  readonly kind: string;
  readonly inPlant: readonly string[];
  readonly inEnterprise: readonly string[];
  readonly url: string;
  readonly listen: { readonly host: string; readonly port: number };
  lost = 0;
  readonly #bridge: Bridge;
  readonly #hasNetem: boolean;
  #healing: (() => Promise<unknown>)[] = [];

  static async open(): Promise<CableLine> {
    const bridge = await Bridge.open(2);
    const hasNetem = await bridge
      .shape(0, ['netem', 'delay', '1ms'])
      .then(() => true)
      .catch(() => false);
    await bridge.shape(0);
    return new CableLine(bridge, hasNetem);
  }

  private constructor(bridge: Bridge, hasNetem: boolean) {
    const [plant, enterprise] = bridge.namespaces;
    if (!plant || !enterprise) throw new Error('two namespaces are needed');
    this.#bridge = bridge;
    this.#hasNetem = hasNetem;
    this.kind = `two network namespaces, ${hasNetem ? 'netem' : 'queues that delay and overflow (the kernel has no netem)'}`;
    this.inPlant = ['ip', 'netns', 'exec', plant.name];
    this.inEnterprise = ['ip', 'netns', 'exec', enterprise.name];
    this.url = `https://${enterprise.address}:${port}`;
    this.listen = { host: enterprise.address, port };
  }

  async cut(random: Random): Promise<void> {
    if (random.chance(0.5)) {
      await this.#bridge.unplug(0);
      this.#healing.push(() => this.#bridge.plug(0));
    } else {
      await this.#bridge.cut(0);
      this.#healing.push(() => this.#bridge.heal(0));
    }
  }

  async disturb(random: Random): Promise<void> {
    const kbits = Math.round(random.between(200, 2000));
    const queue = this.#hasNetem
      ? ['netem', 'delay', `${random.whole(150)}ms`, '20ms', 'loss', `${1 + random.whole(15)}%`]
      : // A short queue on a slow line: what waits in it comes late, and what does not fit is lost.
        ['tbf', 'rate', `${kbits}kbit`, 'burst', '3000', 'limit', `${1600 + random.whole(6000)}`];
    for (const index of [0, 1]) await this.#bridge.shape(index, queue);
    this.#healing.push(async () => {
      for (const index of [0, 1]) {
        this.lost += await this.#bridge.lost(index);
        await this.#bridge.shape(index);
      }
    });
  }

  async heal(): Promise<void> {
    for (const heal of this.#healing.splice(0)) await heal();
  }

  close(): Promise<void> {
    return this.#bridge.close();
  }
}

type State = 'up' | 'refusing' | 'frozen' | 'slow';

class LoopbackLine implements Line {
  readonly kind: string;
  readonly inPlant: readonly string[] = [];
  readonly inEnterprise: readonly string[] = [];
  readonly url: string;
  readonly listen: { readonly host: string; readonly port: number };
  readonly lost = undefined;
  readonly #close: () => void;
  readonly #sockets = new Set<Socket>();
  #state: State = 'up';
  #delayMs = 0;

  static async open(why: string): Promise<LoopbackLine> {
    const [target = 0] = await freePorts(1);
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const front = typeof address === 'object' && address ? address.port : 0;
    const line = new LoopbackLine(why, front, target, () => server.close());
    server.on('connection', (client) => line.#carry(client, connect(target, '127.0.0.1')));
    return line;
  }

  private constructor(why: string, front: number, target: number, close: () => void) {
    this.kind = `a proxy on loopback, without network namespaces (${why})`;
    this.url = `https://localhost:${front}`;
    this.listen = { host: '127.0.0.1', port: target };
    this.#close = close;
  }

  async cut(random: Random): Promise<void> {
    this.#state = random.chance(0.5) ? 'refusing' : 'frozen';
    if (this.#state === 'refusing') for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async disturb(random: Random): Promise<void> {
    this.#state = 'slow';
    this.#delayMs = random.whole(150);
  }

  /** Bytes that a frozen connection did not carry are gone: it cannot go on. */
  async heal(): Promise<void> {
    if (this.#state === 'frozen') for (const socket of this.#sockets) socket.resetAndDestroy();
    this.#state = 'up';
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#close();
  }

  #carry(client: Socket, server: Socket): void {
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(from);
      from.setNoDelay().on('error', () => {});
      let last: Promise<unknown> = Promise.resolve();
      from.on('data', (chunk) => {
        const delayMs = this.#state === 'slow' ? this.#delayMs : 0;
        if (this.#state !== 'frozen') last = Promise.all([last, sleep(delayMs)]).then(() => to.write(chunk));
      });
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
    if (this.#state === 'refusing') client.resetAndDestroy();
  }
}
