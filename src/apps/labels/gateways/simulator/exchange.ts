import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Chance } from './chance.ts';
import { within } from './labels.ts';
import type { FaultKind, SimulatorSettings } from './settings.ts';

/** What a simulated gateway answers; the simulator decides how and whether it is delivered. */
export interface Reply {
  readonly status: number;
  readonly type?: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export const json = (value: unknown, status = 200): Reply => ({
  status,
  type: 'application/json',
  body: JSON.stringify(value),
});
export const text = (body: string, status = 200): Reply => ({ status, type: 'text/plain', body });

/** Thrown to refuse a call; carries its reply. */
export class Refused extends Error {
  readonly reply: Reply;

  constructor(reply: Reply) {
    super(`answered ${reply.status}`);
    this.reply = reply;
  }
}

/** Larger than any image of a label, as base64. */
const maxBody = 8 * 1024 * 1024;
const chunkOfNothing = Buffer.alloc(64 * 1024, 0x20);

export async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBody) throw new Refused(text('too large', 413));
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export function send(response: ServerResponse, { status, type, body, headers }: Reply): void {
  response.writeHead(status, { ...(type && { 'content-type': type }), ...headers });
  response.end(body);
}

export interface Mishap {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly settings: SimulatorSettings;
  readonly chance: Chance;
  readonly fault: FaultKind | undefined;
}

/**
 * Applies the latency and the fault of a call. `accept` does what the call asks and makes the reply; it is not called if
 * the caller has gone away meanwhile, because the caller would not know that it was accepted.
 */
export async function withMishap(
  { request, response, settings, chance, fault }: Mishap,
  accept: () => Promise<Reply>,
): Promise<void> {
  const ms = within(settings.latency, chance);
  if (ms > 0) await sleep(ms);
  if (response.destroyed || request.socket.destroyed) return;
  if (fault === 'hang') return;
  if (fault === 'reset') return reset(request);
  if (fault === 'endless') return endless(response);
  if (fault === 'garbage')
    return send(response, { status: 200, type: 'application/json', body: '{"labelList": [{"lab' });
  if (fault !== undefined && fault !== 'lost') return send(response, failure(fault, settings));
  const reply = await accept();
  if (fault === 'lost') return reset(request);
  send(response, reply);
}

function failure(fault: '401' | '403' | '405' | '429' | '500' | '503', settings: SimulatorSettings): Reply {
  const waits = fault === '429' || fault === '503';
  const due = new Date(Date.now() + settings.retryAfterSeconds * 1000);
  const retryAfter =
    settings.retryAfter === 'seconds'
      ? `${settings.retryAfterSeconds}`
      : settings.retryAfter === 'date'
        ? due.toUTCString()
        : undefined;
  return {
    ...json({ responseCode: fault, responseMessage: 'simulated fault' }, Number(fault)),
    ...(waits && retryAfter !== undefined && { headers: { 'retry-after': retryAfter } }),
  };
}

/** RST, not FIN: what a gateway that is switched off leaves behind. */
function reset(request: IncomingMessage): void {
  request.socket.resetAndDestroy();
}

function endless(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  const more = (): void => {
    while (!response.destroyed && response.write(chunkOfNothing)) if (response.writableNeedDrain) break;
    if (!response.destroyed) response.once('drain', more);
  };
  more();
}
