import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';

export const webhooksKeys = {
  'webhooks.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_WEBHOOKS_CONCURRENCY'],
    doc: 'Webhook deliveries that one process runs at once.',
    fallback: 50,
  }),
  'webhooks.maxEndpoints': key({
    schema: whole(0, 1_000_000),
    env: ['TALLYMAN_WEBHOOKS_MAX_ENDPOINTS'],
    doc: 'Webhook endpoints of one tenant, up to which the API adds more; then 429 TOO_MANY_ENDPOINTS. 0: no limit.',
    fallback: 100,
  }),
  'webhooks.requireHttps': key({
    schema: z.boolean(),
    env: ['TALLYMAN_WEBHOOKS_REQUIRE_HTTPS'],
    doc: 'Refuse webhook endpoints whose address is not https.',
    fallback: true,
  }),
  'webhooks.allowPrivateAddresses': key<boolean | string>({
    schema: z.union([
      z.boolean(),
      z.string().regex(/^[0-9a-fA-F:.]+\/\d{1,3}(,[0-9a-fA-F:.]+\/\d{1,3})*$/, {
        error: 'expected true, false, or networks such as 10.1.0.0/16,fd00::/8',
      }),
    ]),
    env: ['TALLYMAN_WEBHOOKS_ALLOW_PRIVATE'],
    doc: 'Allow webhooks to private, loopback and link-local addresses: `true`, or a list of allowed networks, separated by commas.',
    fallback: false,
  }),
} as const;

export type WebhooksConfig = ValuesOf<typeof webhooksKeys>;
