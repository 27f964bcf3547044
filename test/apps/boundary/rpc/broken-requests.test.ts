/** Requests that break off or make no sense, to `tallyman serve` in a process of its own: none may end the process. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect as connectHttp2, constants } from 'node:http2';
import { request } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { expect, test } from 'vitest';
import { start } from '../../../cli/support.ts';
import { files } from '../objects/storage.ts';
import { pairedZones } from '../zones.ts';

const path = '/objects/files/large';
const call = '/tallyman.boundary.v1.BoundaryService/GetFrontier';
const rounds = 5;

async function scene() {
  const { plant } = await pairedZones();
  const storage = await files();
  const started = start('src/cli/main.ts', ['serve', '--only', 'boundary', '--migrate'], {
    env: { ...plant.env, ...storage.env },
    cwd: plant.folder,
  });
  const port = Number(await started.said(/"boundary +zone [a-z-]+ on https:\/\/[^:]+:(\d+)/));
  const [key, cert] = await Promise.all(
    ['key', 'crt'].map((kind) => readFile(join(plant.folder, `producer.${kind}`), 'utf8')),
  );
  const options = { host: 'localhost', port, key, cert, ca: plant.ca };
  const statusOf = async (method: string, body?: Buffer): Promise<number | undefined> => {
    const sent = request({ ...options, method, path, agent: false });
    sent.end(body);
    const [answer] = await once(sent, 'response');
    answer.resume();
    return answer.statusCode;
  };
  expect(await statusOf('PUT', randomBytes(24 * 1024 * 1024))).toBe(200);
  /** A connection on which anything can be written. */
  const open = async (protocol: 'http/1.1' | 'h2'): Promise<TLSSocket> => {
    const socket = connect({ ...options, servername: 'localhost', ALPNProtocols: [protocol] });
    socket.on('error', () => {});
    await once(socket, 'secureConnect');
    return socket;
  };
  return { ...started, options, statusOf, open };
}

/** What comes until the other side ends the connection. */
async function answerOn(socket: TLSSocket): Promise<string> {
  let answer = '';
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString('latin1');
  });
  if (!socket.closed) await once(socket, 'close');
  return answer;
}

/** A frame of HTTP/2. */
function frame(type: number, flags: number, stream: number, payload = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A header by its name, without compression. */
const header = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.from([0x00, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);

const preface = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(4, 0, 0)]);
const headers = (...pairs: readonly (readonly [string, string])[]): Buffer =>
  frame(1, 0x05, 1, Buffer.concat(pairs.map(([name, value]) => header(name, value))));

type Scene = Awaited<ReturnType<typeof scene>>;

const json = 'content-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}';

async function requireBadRequest({ open }: Scene, head: string): Promise<void> {
  const socket = await open('http/1.1');
  socket.write(`${head}${json}`);
  expect([head, (await answerOn(socket)).slice(0, 12)]).toEqual([head, 'HTTP/1.1 400']);
}

/** A request over HTTP/2 without an authority, and what follows it in the same packet. */
async function withoutAuthority(
  { open }: Scene,
  method: string,
  target: string,
  rest?: Buffer,
): Promise<void> {
  const socket = await open('h2');
  const pairs = [
    [':method', method],
    [':scheme', 'https'],
    [':path', target],
    ['content-type', 'application/json'],
  ] as const;
  socket.write(Buffer.concat([preface, headers(...pairs), ...(rest ? [rest] : [])]));
  if (!socket.destroyed) await Promise.race([once(socket, 'data'), once(socket, 'close')]);
  socket.destroy();
}

const cases: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  'a download whose request announces a body that never comes, and that breaks off': async ({ open }) => {
    const socket = await open('http/1.1');
    socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n`);
    await once(socket, 'data');
    socket.destroy();
  },
  'a download over HTTP/2 that is reset, or loses its connection': async ({ options }) => {
    for (const isReset of [true, false]) {
      const session = connectHttp2(`https://localhost:${options.port}`, options).on('error', () => {});
      const stream = session.request({ ':path': path }).on('error', () => {});
      await once(stream, 'data');
      if (isReset) stream.close(constants.NGHTTP2_CANCEL);
      session.destroy();
    }
  },
  'an upload that breaks off': async ({ open }) => {
    const socket = await open('http/1.1');
    socket.write(`PUT ${path}-cut HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nx`);
    await sleep(50);
    socket.destroy();
  },
  'a call whose host is none': async (parts) => {
    for (const host of ['[', 'a b', ':::', '%', 'localhost:99999'])
      await requireBadRequest(parts, `POST ${call} HTTP/1.1\r\nhost: ${host}\r\n`);
  },
  'a call over HTTP/1.0 that names no host': (parts) => requireBadRequest(parts, `POST ${call} HTTP/1.0\r\n`),
  'a request over HTTP/2 that names no host': async (parts) => {
    await withoutAuthority(parts, 'POST', call);
    await withoutAuthority(parts, 'GET', path);
  },
  'a request over HTTP/2 with an error of the protocol right behind it': async (parts) => {
    for (const rest of [frame(5, 0, 0), frame(3, 0, 1, Buffer.alloc(4)), frame(7, 0, 0, Buffer.alloc(8))])
      for (const [method, target] of [
        ['POST', call],
        ['GET', path],
        ['HEAD', `${path}-absent`],
      ] as const)
        await withoutAuthority(parts, method, target, rest);
  },
};

test('BND-1: requests that break off or make no sense leave the node running', async () => {
  const parts = await scene();
  const { child, ended, statusOf } = parts;
  for (const [name, run] of Object.entries(cases))
    for (let round = 0; round < rounds; round += 1) {
      await run(parts).catch((error: unknown) => {
        if (child.exitCode === null) throw error;
      });
      const state = await Promise.race([ended, statusOf('HEAD').catch(() => ended)]);
      expect([name, state]).toEqual([name, 200]);
    }
  expect(await statusOf('GET')).toBe(200);
  child.kill('SIGTERM');
  const { code, stdout, stderr } = await ended;
  // Callers that leave are not errors of the node.
  expect((stdout + stderr).match(/.*("level":"?(50|error)|unhandled| failed).*/gi)).toBeNull();
  expect(code).toBe(0);
});
