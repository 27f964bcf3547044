/**
 * A broker inside this process, for machines that have none. It speaks MQTT 3.1.1, and so does the consumer then.
 *
 * It keeps messages in memory: they survive a killed processor, but not this process. It gets one message at a time: with 15
 * in flight it acknowledged 3,000 messages at QoS 2 and delivered 2,711 of them (aedes 1.2.0). With its persistence on disk
 * it also delivered them out of order.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import type { Broker } from '../broker.ts';

/** The part of the package that we use; the package is optional. */
interface AedesModule {
  readonly Aedes: {
    createBroker(): Promise<{
      readonly handle: (socket: Socket) => void;
      close(done: () => void): void;
    }>;
  };
}

/** Undefined if the package is not installed. */
export async function startAedes(): Promise<Broker | undefined> {
  const module = await installed<AedesModule>('aedes');
  if (module === undefined) return undefined;
  const broker = await module.Aedes.createBroker();
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
    where: `aedes in this process, on 127.0.0.1:${port} (a Mosquitto on this machine would be used instead)`,
    mostInFlight: 1,
    close: async () => {
      const closed = once(server.close(), 'close');
      for (const socket of sockets) socket.destroy();
      await closed;
      await new Promise<void>((done) => broker.close(done));
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
