import { readFile } from 'node:fs/promises';
import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import type { MqttSettings } from './options.ts';

/** The broker's address, for messages. */
export function brokerOf({ tls, brokerHost, brokerPort }: MqttSettings): string {
  const host = isIP(brokerHost) === 6 ? `[${brokerHost}]` : brokerHost;
  return `${tls ? 'mqtts' : 'mqtt'}://${host}:${brokerPort}`;
}

/** A socket that connects to the broker; `secureConnect` or `connect` tells when it has. */
export async function dial(settings: MqttSettings): Promise<Socket> {
  const { brokerHost: host, brokerPort: port } = settings;
  if (!settings.tls) return connectPlain({ host, port, noDelay: true });
  const [ca, cert, key] = await Promise.all([
    pem('tlsCa', settings.tlsCa),
    pem('tlsCertificate', settings.tlsCertificate),
    pem('tlsKey', settings.tlsKey),
  ]);
  const servername = settings.tlsServerName ?? (isIP(host) === 0 ? host : '');
  const socket = connectTls({ host, port, ...ca, ...cert, ...key, servername });
  socket.setNoDelay(true);
  return socket;
}

const roles = { tlsCa: 'ca', tlsCertificate: 'cert', tlsKey: 'key' } as const;

async function pem(
  option: keyof typeof roles,
  value: string | null,
): Promise<{ ca?: string; cert?: string; key?: string }> {
  if (value === null) return {};
  if (value.includes('-----BEGIN')) return { [roles[option]]: value };
  try {
    return { [roles[option]]: await readFile(value, 'utf8') };
  } catch (error) {
    throw new TallymanError('BAD_OPTION', `MQTT option ${option} cannot be read: ${messageOf(error)}`);
  }
}
