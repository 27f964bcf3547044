import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import type { Gate } from './gate.ts';
import { nameSchemas } from './openapi.ts';

const routePrefix = '/v1/docs';

/** The OpenAPI document and the page to browse it. For everybody, as often as strangers may ask; before the routes that it tells of. */
export async function addDocumentation(
  app: FastifyInstance,
  { gate, version }: { readonly gate: Gate; readonly version: string },
): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Tallyman',
        version,
        description:
          'What one tenant has: jobs, lanes, queues, dead letters, schedules, and what its apps keep. Lists come 50 at a time, at ' +
          'most 200; `next_cursor` is the `cursor` of the next page. Writes take an `Idempotency-Key`.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      servers: [{ url: '/', description: 'The server that this document comes from' }],
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
    },
    transform: jsonSchemaTransform,
    transformObject: (document) => ('openapiObject' in document ? nameSchemas(document.openapiObject) : {}),
  });
  // As bytes: answers that wait for their readers share them.
  let document: Buffer | undefined;
  const sendDocument = (reply: FastifyReply): FastifyReply => {
    document ??= Buffer.from(JSON.stringify(app.swagger()));
    return reply.type('application/json; charset=utf-8').send(document);
  };
  // In a context of its own, whose hooks hold for the files of the page, too.
  await app.register(async (inner) => {
    inner.addHook('onRequest', async (request, reply) => {
      gate.admitStranger(request);
      // The page's own route would write it anew for each request.
      if (request.routeOptions.url === `${routePrefix}/json`) return sendDocument(reply);
    });
    inner.get('/v1/openapi.json', { schema: { hide: true } }, async (_request, reply) => sendDocument(reply));
    await inner.register(swaggerUi, {
      routePrefix,
      // The page's own scripts and styles, by their hashes where they stand in it; nothing of others.
      staticCSP: true,
      transformStaticCSP: (header) =>
        `${header}; connect-src 'self'; frame-ancestors 'none'; form-action 'self'; object-src 'none'`,
      theme: {
        title: 'Tallyman API',
        css: [{ filename: 'theme.css', content: '.swagger-ui .topbar { display: none }' }],
      },
    });
  });
}
