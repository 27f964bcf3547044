import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { inRoot, node } from '../cli/support.ts';
import { server } from './support.ts';

interface Operation {
  readonly operationId?: string;
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { schema: object }>> }>
  >;
}

interface Document {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Readonly<Record<string, unknown>>>> };
}

async function documentOf(): Promise<Document> {
  const { ask } = await server();
  const { status, body } = await ask('GET', '/v1/openapi.json');
  expect(status).toBe(200);
  return body;
}

test('the OpenAPI document is written as text once, however often it is asked for', async () => {
  const { ask, server: running } = await server();
  const first = await ask('GET', '/v1/openapi.json');
  expect(first.headers.get('content-type')).toBe('application/json; charset=utf-8');
  running.app.swagger = () => {
    throw new Error('it was written again');
  };
  // The second is what the page asks for.
  for (const path of ['/v1/openapi.json', '/v1/docs/json']) {
    const again = await ask('GET', path);
    expect([path, again.status]).toEqual([path, 200]);
    expect(again.headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(again.body).toEqual(first.body);
  }
});

interface Problem {
  readonly severity: string;
  readonly ruleId: string;
  readonly message: string;
  readonly location: readonly { readonly pointer?: string }[];
}

/** What Redocly finds, with its recommended rules. It sends nothing anywhere. */
async function lint(document: object): Promise<readonly Problem[]> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-openapi-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'openapi.json');
  await writeFile(file, JSON.stringify(document));
  const redocly = inRoot('node_modules/@redocly/cli/bin/cli.js');
  const args = [redocly, 'lint', file, '--extends=recommended', '--format=json', '--max-problems=1000'];
  const env = {
    PATH: process.env.PATH ?? '',
    REDOCLY_TELEMETRY: 'off',
    REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true',
  };
  const stdout = await new Promise<string>((resolve) => {
    execFile(node, args, { cwd: folder, env, maxBuffer: 2 ** 26 }, (_error, text) => resolve(text));
  });
  return (JSON.parse(stdout) as { problems: readonly Problem[] }).problems;
}

const told = ({ severity, ruleId, message, location }: Problem): string =>
  `${severity} ${ruleId}: ${message} at ${location[0]?.pointer}`;

test('API-2: Redocly finds no error in the OpenAPI document, and would find one', {
  timeout: 600_000,
}, async () => {
  const document = await documentOf();
  expect((await lint(document)).map(told)).toEqual([]);
  const broken = structuredClone(document) as { paths: Record<string, Record<string, object>> };
  broken.paths['/v1/broken'] = { get: { responses: { 200: { description: 'x', content: 7 } } } };
  expect((await lint(broken)).some(({ severity }) => severity === 'error')).toBe(true);
});

test('API-2: schemas have names, alike ones the same, and none is repeated inline', async () => {
  const { servers, paths, components } = await documentOf();
  expect(servers).toEqual([{ url: '/', description: expect.any(String) }]);
  const answer = (path: string, method = 'get', status = '200') =>
    paths[path]?.[method]?.responses[status]?.content?.['application/json']?.schema;
  expect(answer('/v1/jobs/{id}')).toEqual({ $ref: '#/components/schemas/Job' });
  expect(answer('/v1/jobs')).toEqual({ $ref: '#/components/schemas/JobPage' });
  expect(answer('/v1/jobs', 'post', '4XX')).toEqual({ $ref: '#/components/schemas/Error' });
  expect(components.schemas.JobPage).toMatchObject({
    properties: { items: { type: 'array', items: { $ref: '#/components/schemas/Job' } } },
  });
  expect(components.schemas.Job).toMatchObject({ type: 'object', properties: { lane: expect.anything() } });
  const schemas = Object.values(components.schemas).map((schema) => JSON.stringify(schema));
  expect(new Set(schemas).size).toBe(schemas.length);
  const inline = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, { requestBody, responses }]) =>
      [requestBody, ...Object.values(responses)].flatMap((part) => {
        const schema = part?.content?.['application/json']?.schema as { type?: string } | undefined;
        return schema?.type === 'object' && 'properties' in schema ? [`${method} ${path}`] : [];
      }),
    ),
  );
  expect(inline).toEqual([]);
});

test('API-2: what is not JSON is named: CSV in, images, metrics and the stream out', async () => {
  const { paths } = await documentOf();
  const products = paths['/v1/stores/{code}/products']?.post?.requestBody?.content;
  expect(products?.['text/csv']?.schema).toMatchObject({ type: 'string' });
  expect(products?.['application/json']?.schema).toEqual({ $ref: '#/components/schemas/ProductsPutRequest' });
  const types = (path: string) => Object.keys(paths[path]?.get?.responses['200']?.content ?? {});
  expect(types('/v1/labels/{mac}/preview')).toEqual(['image/png']);
  expect(types('/v1/stream')).toEqual(['text/event-stream']);
  expect(types('/metrics')).toEqual(['text/plain']);
});
