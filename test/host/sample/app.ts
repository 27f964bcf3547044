/**
 * An app with one of everything, for a test that puts it into the list of apps and does nothing else. Parcels are weighed:
 * the public kind `parcels.weigh` enqueues the internal kind `parcels.record`, which writes the weight and emits an event.
 */
import { Counter, type Registry } from 'prom-client';
import { z } from 'zod';
import { key, whole } from '../../../src/config/key.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { defineEventType } from '../../../src/events/catalogue.ts';
import { defineApp, type Host } from '../../../src/host/app.ts';
import { examples, group, type JsonOption, withJson } from '../../../src/host/cli/options.ts';
import { show } from '../../../src/host/cli/output/print.ts';
import { readers } from '../../../src/host/roles.ts';
import { route, text } from '../../../src/host/route.ts';

const config = {
  'parcels.maxGrams': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_PARCELS_MAX_GRAMS'],
    doc: 'The heaviest parcel that is taken.',
    fallback: 30_000,
  }),
} as const;

const weight = z.object({ code: z.string(), grams: z.int().min(1) });
type Weight = z.infer<typeof weight>;

export const weighed = defineEventType({
  type: 'parcel.weighed',
  summary: 'A parcel was put on the scales',
  aggregateType: 'parcel',
  schema: weight,
});

/** The kinds; `count` is told of each parcel. */
export function parcelKinds(maxGrams: number, count: () => void) {
  const record = defineKind<Weight>({
    name: 'parcels.record',
    queue: 'parcels',
    schema: weight,
    scope: 'tenant',
    handler: async ({ code, grams }, context) => {
      await context.commit('select parcels.weigh($1, $2, $3)', [context.tenantId, code, grams]);
      count();
    },
  });
  const weigh = defineKind<Weight>({
    name: 'parcels.weigh',
    queue: 'parcels',
    schema: weight.refine(({ grams }) => grams <= maxGrams, { error: `heavier than ${maxGrams} g` }),
    public: true,
    scope: 'tenant',
    handler: async (parcel, context) => void (await context.enqueue(record, parcel)),
  });
  return [weigh, record];
}

export const parcelsApp = defineApp({
  name: 'parcels',
  summary: 'parcels and their weights',
  component: {
    name: 'parcels',
    folder: new URL('./migrations/', import.meta.url),
    functions: new URL('./functions/', import.meta.url),
  },
  config,
  errors: { NO_PARCEL: 404 },
  events: [weighed],
  kinds: [{ name: 'parcels.weigh', public: true }, { name: 'parcels.record' }],
  routes: async () => [
    route({
      method: 'GET',
      url: '/v1/parcels/:code',
      action: 'parcels.show',
      summary: 'One parcel',
      roles: readers,
      params: z.strictObject({ code: text(64) }),
      response: z.object({ code: z.string(), grams: z.number() }),
      handle: async ({ scope, params }) => {
        const { rows } = await scope.query('select code, grams from parcels.parcels where code = $1', [
          params.code,
        ]);
        return rows[0] ?? { code: params.code, grams: 0 };
      },
    }),
  ],
  commands: (program, frame) => {
    withJson(group(program, 'parcels', 'parcels and their weights').command('list'))
      .description('all parcels')
      .addHelpText('after', examples(['parcels list']))
      .action((options: JsonOption) =>
        frame.withTallyman(async ({ tallyman }) => {
          const { rows } = await tallyman.database.query(
            'select code, grams from parcels.parcels order by code',
          );
          show(options.json, { items: rows }, () =>
            rows.map(({ code, grams }) => `${code} ${grams} g`).join('\n'),
          );
        }),
      );
  },
  metrics: async (registry: Registry) =>
    new Counter({
      name: 'tallyman_parcels_total',
      help: 'Parcels that were weighed.',
      registers: [registry],
    }),
  timeline: async (on, { type, id }) => {
    if (type !== 'parcel') return [];
    const { rows } = await on.query<{ code: string; grams: number; at: Date }>(
      'select code, grams, weighed_at as at from parcels.parcels where tenant_id = $1 and code = $2',
      [on.tenantId, id],
    );
    return rows.map(({ code, grams, at }) => ({
      id: code,
      type: 'parcel.weighed',
      at,
      text: `weighed: ${grams} g`,
      details: { grams },
    }));
  },
  search: async (on, given) => {
    const { rows } = await on.query<{ code: string }>(
      'select code from parcels.parcels where tenant_id = $1 and code ^@ $2 order by code limit 10',
      [on.tenantId, given],
    );
    return rows.map(({ code }) => ({ type: 'parcel', id: code }));
  },
  start: async (host: Host, settings, parcels) => {
    const kinds = parcelKinds(settings['parcels.maxGrams'], () => parcels.inc());
    await host.run({ kinds });
    return { summary: `parcels up to ${settings['parcels.maxGrams']} g` };
  },
});
