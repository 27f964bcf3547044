/**
 * Connections that end before there is a request: what comes is not TLS, or not a TLS that the node accepts. Each is noted. A
 * caller that speaks plain HTTP gets a plain answer; all others see an alert of TLS, if anything.
 */
import type { Http2SecureServer } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { BoundaryNode } from './service.ts';

const plainHttpReason =
  'plain HTTP is refused: this port speaks TLS only; use https:// with a client certificate';

export function refuseHandshakes(server: Http2SecureServer, { onRefusal }: BoundaryNode): void {
  /** The TLS socket of a handshake that failed cannot send plain text; the socket below it can. */
  const connections = new Map<string, Socket>();
  server.on('connection', (socket: Socket) => {
    const name = nameOf(socket);
    connections.set(name, socket);
    socket.once('close', () => connections.delete(name));
  });
  // Before the listener of the server itself, which ends the connection.
  server.prependListener('tlsClientError', (error: NodeJS.ErrnoException, socket: TLSSocket) => {
    const refusal = refusalOf(error);
    if (!refusal) return;
    const address = socket.remoteAddress ?? 'unknown address';
    onRefusal({ name: address, action: 'connect', address, ...refusal });
    // A caller that is still sending may lose it: the connection ends with what it sends unread.
    if (refusal.code === 'plain_http') connections.get(nameOf(socket))?.write(plainAnswer);
  });
}

const nameOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

/** Undefined: not the node has refused the caller, but the caller has left, or has refused the node. */
function refusalOf(error: NodeJS.ErrnoException): { code: string; reason: string } | undefined {
  const { code = '', message } = error;
  if (/^ERR_SSL_HTTPS?_(PROXY_)?REQUEST$/.test(code)) return { code: 'plain_http', reason: plainHttpReason };
  if (!code.startsWith('ERR_SSL_') || code.includes('_ALERT_')) return undefined;
  const { reason = message } = error as { reason?: string };
  return { code: 'handshake_failed', reason: `there is no TLS that both sides speak: ${reason}` };
}

const plainBody = JSON.stringify({
  code: 'invalid_argument',
  reason: 'plain_http',
  message: plainHttpReason,
});
const plainAnswer = [
  'HTTP/1.1 400 Bad Request',
  'content-type: application/json',
  `content-length: ${Buffer.byteLength(plainBody)}`,
  'connection: close',
  '',
  plainBody,
].join('\r\n');
