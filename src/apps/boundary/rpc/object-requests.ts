/**
 * Objects by plain HTTP, so that curl can:
 *
 *   PUT  /objects/<bucket>/<key>   stores the body; `x-object-digest` says what it must be. `content-range: bytes <from>-…`
 *                                  continues an upload that broke off.
 *   GET  /objects/<bucket>/<key>   the object, or with `range: bytes=<from>-<to>` a part of it
 *   HEAD /objects/<bucket>/<key>   its size and digest; if it is not stored, `x-upload-offset` says how much of it has come
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import { pipeline } from 'node:stream/promises';
import { BoundaryError, invalid } from '../domain/errors.ts';
import type { Identity } from '../domain/identity.ts';
import type { ObjectInfo, ObjectName } from '../objects/names.ts';
import { answerError, answerJson } from './plain-errors.ts';
import { allowed, allowedToRead, type BoundaryNode } from './service.ts';

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

export async function objectRequest(
  node: BoundaryNode,
  caller: Identity | undefined,
  request: Request,
  response: Response,
): Promise<void> {
  try {
    const name = nameIn(request.url ?? '', node.tenantId);
    switch (request.method) {
      case 'PUT':
        allowed(node, caller, { kind: 'put objects' });
        return await put(node, name, request, response);
      case 'GET':
      case 'HEAD':
        return await get(node, caller, name, request, response as ServerResponse);
      default:
        throw new BoundaryError(
          'INVALID_ARGUMENT',
          'unknown_method',
          `there is no ${request.method} for objects`,
        );
    }
  } catch (error) {
    if (hasLeft(error)) return;
    // What is left of the body is not read: the connection ends with the answer.
    if (!request.complete && request.httpVersionMajor === 1 && !response.headersSent)
      (response as ServerResponse).setHeader('connection', 'close');
    answerError(response, error, node.logger);
  }
}

/** The caller did not wait for all of the answer: no error of the node, and there is nobody to tell. */
const hasLeft = (error: unknown): boolean =>
  /^ERR_(STREAM_PREMATURE_CLOSE|STREAM_DESTROYED|HTTP2_INVALID_STREAM)$/.test(
    String((error as { code?: unknown }).code),
  );

/** The key is everything behind the bucket, and may have slashes in it. */
function nameIn(url: string, tenantId: string): ObjectName {
  const [, bucket, key] = /^\/objects\/([^/?#]+)\/([^?#]+)/.exec(url) ?? [];
  if (bucket === undefined || key === undefined)
    throw new BoundaryError(
      'NOT_FOUND',
      'no_such_path',
      'there is nothing here: expected /objects/<bucket>/<key>',
    );
  try {
    return { tenantId, bucket: decodeURIComponent(bucket), key: decodeURIComponent(key) };
  } catch {
    throw invalid('key', 'is not percent-encoded UTF-8');
  }
}

async function put(
  node: BoundaryNode,
  name: ObjectName,
  request: Request,
  response: Response,
): Promise<void> {
  const { headers } = request;
  const digest = headers['x-object-digest'];
  const range = headers['content-range'];
  const from = range === undefined ? 0 : Number(/^bytes (\d+)-/.exec(range)?.[1] ?? Number.NaN);
  if (Number.isNaN(from))
    throw invalid('content-range', `must be "bytes <from>-<to>/<size>", got "${range}"`);
  const stored = await node.objects.put(name, bodyOf(request), {
    digest: typeof digest === 'string' ? digest : undefined,
    mediaType: headers['content-type'],
    from,
    size: lengthIn(headers),
  });
  answerJson(response, 200, stored);
}

/**
 * Over HTTP/2, a request that is cut off before anybody reads it ends for its reader as if it were whole. It must fail instead:
 * an object never changes, and the rest of this one would not be missed.
 */
async function* bodyOf(request: Request): AsyncIterable<Uint8Array> {
  const announced = lengthIn(request.headers);
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    yield chunk;
  }
  if (request.aborted || (announced !== undefined && bytes !== announced)) throw cutOff();
}

const cutOff = (): Error =>
  Object.assign(new Error('the request was cut off before all of its body had come'), {
    code: 'ERR_STREAM_PREMATURE_CLOSE',
  });

/** Undefined: the body comes in chunks. */
function lengthIn({ 'content-length': length }: Request['headers']): number | undefined {
  return length === undefined || length === '' ? undefined : Number(length);
}

async function get(
  node: BoundaryNode,
  caller: Identity | undefined,
  name: ObjectName,
  request: Request,
  response: ServerResponse,
): Promise<void> {
  const isHead = request.method === 'HEAD';
  const info = await infoOrOffset(node, caller, name, isHead, response);
  const range = rangeOf(request.headers.range, info.size);
  const { bytes } = await node.objects.get(name, range ?? {});
  const count = range ? range.count : info.size;
  response.writeHead(range && !isHead ? 206 : 200, {
    ...headersOf(info),
    'content-length': isHead ? info.size : count,
    ...(range &&
      !isHead && { 'content-range': `bytes ${range.from}-${range.from + range.count - 1}/${info.size}` }),
  });
  if (isHead) response.end();
  else await pipeline(bytes, response);
}

async function infoOrOffset(
  node: BoundaryNode,
  caller: Identity | undefined,
  name: ObjectName,
  isHead: boolean,
  response: ServerResponse,
): Promise<ObjectInfo> {
  try {
    await allowedToRead(node, caller, name);
    return await node.objects.info(name);
  } catch (error) {
    const isAbsent = error instanceof BoundaryError && error.code === 'NOT_FOUND';
    if (isHead && isAbsent) response.setHeader('x-upload-offset', await node.objects.resumable(name));
    throw error;
  }
}

const headersOf = ({ digest, mediaType }: ObjectInfo) => ({
  'accept-ranges': 'bytes',
  'x-object-digest': digest,
  etag: `"${digest}"`,
  'content-type': mediaType ?? 'application/octet-stream',
  // What a producer stored is never a page of this origin.
  'content-security-policy': "default-src 'none'; sandbox",
  'x-content-type-options': 'nosniff',
});

/** One range; others, and what is no range of bytes, are answered with the whole object, as HTTP allows. */
function rangeOf(header: string | undefined, size: number): { from: number; count: number } | undefined {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  const from = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const to = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (from >= size || to < from)
    throw new BoundaryError(
      'OUT_OF_RANGE',
      'no_such_range',
      `the object has ${size} bytes; "${header}" is outside of it`,
    );
  return { from, count: to - from + 1 };
}
