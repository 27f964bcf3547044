/**
 * The readers, in a process of their own: QoS 2, as many messages on their way as Mosquitto takes from a client, on a few
 * connections. They stay ahead of the consumer by a bounded number of messages, which it grants: a long queue would measure how
 * the broker drains one.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { generate, type Packet, parser } from 'mqtt-packet';
import { type Message, messagesOf } from './messages.ts';
import type { Size } from './workloads.ts';

export interface PublisherTask {
  readonly port: number;
  readonly size: Size;
}

const CONNECTIONS = 4;
const IN_FLIGHT = 20;
const protocol = { protocolVersion: 5 } as const;

const [{ port, size }] = (await once(process, 'message')) as [PublisherTask];
process.once('disconnect', () => process.exit());
const messages = messagesOf(size);
let granted = 0;
let sent = 0;
const lines: (() => void)[] = [];
process.on('message', (count: number) => {
  granted = count;
  for (const send of lines) send();
});

function take(): Message | undefined {
  if (sent >= granted) return undefined;
  const { value, done } = messages.next();
  if (done) return undefined;
  sent += 1;
  return value;
}

async function open(number: number): Promise<void> {
  const socket = connect(port, '127.0.0.1').setNoDelay();
  const incoming = parser(protocol);
  const free = Array.from({ length: IN_FLIGHT }, (_, i) => i + 1);
  const write = (packet: Packet): void => void socket.write(generate(packet, protocol));
  const send = (): void => {
    socket.cork();
    while (free.length > 0) {
      const message = take();
      if (!message) break;
      const messageId = free.pop() as number;
      write({ cmd: 'publish', qos: 2, dup: false, retain: false, messageId, ...message });
    }
    socket.uncork();
  };
  const welcomed = new Promise<void>((resolve) => {
    incoming.on('packet', (packet) => {
      if (packet.cmd === 'connack') resolve();
      if (packet.cmd === 'pubrec') write({ cmd: 'pubrel', messageId: packet.messageId ?? 0 });
      if (packet.cmd !== 'pubcomp') return;
      free.push(packet.messageId ?? 0);
      send();
    });
  });
  socket.on('data', (chunk: Buffer) => incoming.parse(chunk));
  write({ cmd: 'connect', clientId: `readers-${number}`, keepalive: 0, clean: true, ...protocol });
  await welcomed;
  lines.push(send);
}

for (let i = 0; i < CONNECTIONS; i += 1) await open(i);
process.send?.('ready');
