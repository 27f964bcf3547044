/** A broker inside this process, for machines that have none. It speaks MQTT 3.1.1, and so does the consumer then. */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { relative, resolve } from 'node:path';
import type { Broker } from '../broker.ts';

/** As much of the packages as is used; they need not be there. */
interface AedesModule {
  readonly Aedes: {
    createBroker(options: { readonly persistence: unknown }): Promise<{
      readonly handle: (socket: Socket) => void;
      close(done: () => void): void;
    }>;
  };
}
interface PersistenceModule {
  readonly default: (db: unknown) => unknown;
}
interface LevelModule {
  readonly Level: new (folder: string) => { close(): Promise<void> };
}

/** Undefined where the packages are not installed. */
export async function startAedes(at: string): Promise<Broker | undefined> {
  const [aedes, persistence, level] = await Promise.all([
    installed<AedesModule>('aedes'),
    installed<PersistenceModule>('aedes-persistence-level'),
    installed<LevelModule>('level'),
  ]);
  if (!aedes || !persistence || !level) return undefined;
  const folder = resolve(at);
  await mkdir(folder, { recursive: true });
  const db = new level.Level(folder);
  const broker = await aedes.Aedes.createBroker({ persistence: persistence.default(db) });
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    broker.handle(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `mqtt://127.0.0.1:${port}`,
    where: `aedes in this process, on 127.0.0.1:${port}, data in ${relative(process.cwd(), folder)}`,
    close: async () => {
      const closed = once(server.close(), 'close');
      for (const socket of sockets) socket.destroy();
      await closed;
      await new Promise<void>((done) => broker.close(done));
      await db.close();
    },
  };
}

async function installed<T>(name: string): Promise<T | undefined> {
  try {
    return (await import(name)) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}
