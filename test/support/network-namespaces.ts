/** Network namespaces on one bridge, to cut machines off from each other that are all this one. For root only. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ip = (...args: readonly string[]) => run('ip', args);

export interface Namespace {
  readonly name: string;
  readonly address: string;
}

export class Bridge {
  readonly namespaces: readonly Namespace[];
  readonly #name: string;

  private constructor(name: string, namespaces: readonly Namespace[]) {
    this.#name = name;
    this.namespaces = namespaces;
  }

  /** The host has an address on the bridge, too. */
  static async open(count: number): Promise<Bridge> {
    const id = process.pid % 0xffff;
    const name = `tmb${id.toString(16)}`;
    const subnet = `10.${200 + (id % 50)}.${(id >> 6) % 250}`;
    const namespaces = Array.from({ length: count }, (_, i) => ({
      name: `${name}n${i}`,
      address: `${subnet}.${i + 1}`,
    }));
    const bridge = new Bridge(name, namespaces);
    try {
      await ip('link', 'add', name, 'type', 'bridge');
      await ip('addr', 'add', `${subnet}.254/24`, 'dev', name);
      await ip('link', 'set', name, 'up');
      for (const [i, { name: space, address }] of namespaces.entries()) {
        const [outer, inner] = [bridge.#device(i), `${name}i${i}`];
        await ip('netns', 'add', space);
        await ip('link', 'add', outer, 'type', 'veth', 'peer', 'name', inner);
        await ip('link', 'set', inner, 'netns', space);
        await ip('link', 'set', outer, 'master', name, 'up');
        await ip('-n', space, 'addr', 'add', `${address}/24`, 'dev', inner);
        await ip('-n', space, 'link', 'set', inner, 'up');
        await ip('-n', space, 'link', 'set', 'lo', 'up');
      }
      return bridge;
    } catch (error) {
      await bridge.close();
      throw error;
    }
  }

  /** Nothing passes between one namespace and the other ones; the host still reaches all. */
  cut(index: number): Promise<void> {
    return this.#routes(index, 'add');
  }

  heal(index: number): Promise<void> {
    return this.#routes(index, 'del');
  }

  /** Pulls the cable: packets go nowhere, and no error comes back. Also from and to the host. */
  unplug(index: number): Promise<unknown> {
    return ip('link', 'set', this.#device(index), 'down');
  }

  plug(index: number): Promise<unknown> {
    return ip('link', 'set', this.#device(index), 'up');
  }

  /** How packets get to a namespace, in the words of `tc qdisc`; nothing: as they come. Fails where the kernel has no such queue. */
  async shape(index: number, queue: readonly string[] = []): Promise<void> {
    const root = ['dev', this.#device(index), 'root'];
    if (queue.length > 0) await run('tc', ['qdisc', 'replace', ...root, ...queue]);
    // There is none to remove while packets go as they come.
    else await run('tc', ['qdisc', 'del', ...root]).catch(() => {});
  }

  /** Packets that the present queue to a namespace has lost. */
  async lost(index: number): Promise<number> {
    const { stdout } = await run('tc', ['-s', 'qdisc', 'show', 'dev', this.#device(index)]);
    return Number(/dropped (\d+)/.exec(stdout)?.[1] ?? 0);
  }

  #device(index: number): string {
    return `${this.#name}o${index}`;
  }

  async close(): Promise<void> {
    for (const { name } of this.namespaces) await ip('netns', 'del', name).catch(() => {});
    await ip('link', 'del', this.#name).catch(() => {});
  }

  async #routes(index: number, verb: 'add' | 'del'): Promise<void> {
    const cutOff = this.namespaces[index];
    if (!cutOff) throw new Error(`there is no namespace ${index}`);
    for (const other of this.namespaces) {
      if (other === cutOff) continue;
      await ip('-n', cutOff.name, 'route', verb, 'blackhole', `${other.address}/32`);
      await ip('-n', other.name, 'route', verb, 'blackhole', `${cutOff.address}/32`);
    }
  }
}

export const canMakeNamespaces = process.platform === 'linux' && process.getuid?.() === 0;
