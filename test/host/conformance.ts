/** What every app must hold to be one of the list; each fault is a sentence. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { z } from 'zod';
import type { Queryable } from '../../src/engine/database/database.ts';
import type { AnyKind } from '../../src/engine/jobs/kind.ts';
import type { App, RouteHost } from '../../src/host/app.ts';
import { roles } from '../../src/host/roles.ts';
import type { AnyRoute } from '../../src/host/route.ts';

const root = join(import.meta.dirname, '../..');

/** Tables with a tenant and no row-level security, in a database that every app was migrated into. */
export async function tableFaults(database: Queryable): Promise<string[]> {
  const { rows } = await database.query<{ name: string }>(
    `select format('%I.%I', n.nspname, c.relname) as name
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
       join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
      where c.relkind in ('r', 'p') and not c.relispartition and n.nspname not in ('pg_catalog', 'information_schema')
        and not (c.relrowsecurity and exists (select 1 from pg_policy p where p.polrelid = c.oid))
      order by 1`,
  );
  return rows.map(
    ({ name }) => `table ${name} has a tenant_id and no row-level security: call tallyman.isolate`,
  );
}

export async function routeFaults(app: App, host: RouteHost): Promise<string[]> {
  const routes = (await app.routes?.(host)) ?? [];
  return routes.flatMap(({ method, url, roles: allowed, public: open }) => {
    const name = `route ${method} ${url} of ${app.name}`;
    if (open)
      return [
        ...(open.why === '' ? [`${name} is public and does not say why`] : []),
        ...(allowed.length > 0 ? [`${name} is public and names roles`] : []),
      ];
    return Array.isArray(allowed) && allowed.length > 0 && allowed.every((role) => roles.includes(role))
      ? []
      : [`${name} has no role`];
  });
}

/** Routes that answer without a key. */
export async function publicRoutes(apps: readonly App[], host: RouteHost): Promise<string[]> {
  const routes = (await Promise.all(apps.map((app) => app.routes?.(host) ?? []))).flat();
  return routes.filter((route) => route.public).map(({ method, url }) => `${method} ${url}`);
}

/** More problems in one request take seconds, in which nobody else is answered. */
const mostProblems = 20_000;

/** Parts of requests in which so much can be wrong at once: an array without `max`, a record, or one within the other. */
export function boundFaults(routes: readonly AnyRoute[]): string[] {
  return routes.flatMap(({ method, url, ...parts }) =>
    (['params', 'query', 'body'] as const).flatMap((part) => {
      const schema: z.ZodType | undefined = parts[part];
      const problems = schema ? problemsIn(schema) : 0;
      if (problems <= mostProblems) return [];
      return [
        `${part} of ${method} ${url} can have ${problems} problems at once: give each array its \`max\`, and use \`recordOf\` for records`,
      ];
    }),
  );
}

/** How many values of a schema can be wrong at once. */
function problemsIn(schema: z.ZodType): number {
  const { checks, ...def } = schema.def as unknown as Readonly<Record<string, unknown>> & {
    readonly checks?: z.core.$ZodCheck<never>[];
  };
  switch (def.type) {
    // It is never wrong, or its own function says so once.
    case 'unknown':
    case 'any':
      return 0;
    // May lead back to itself.
    case 'lazy':
      return Number.POSITIVE_INFINITY;
    case 'array':
    case 'record':
    case 'map':
    case 'set': {
      // Those that zod looks at before the first element.
      const caps = z.core.util.sizeCaps(checks).map(([most]) => most);
      const each = problemsOf([def.element, isAnyText(def.keyType) ? null : def.keyType, def.valueType]);
      return each === 0 ? 1 : Math.min(...caps) * each;
    }
    default:
      return (def.innerType === undefined ? 1 : 0) + problemsOf(def);
  }
}

/** Of the schemas that a definition is made of. */
const problemsOf = (definition: object): number =>
  Object.values(definition).reduce((sum: number, part: unknown) => {
    if (part instanceof z.ZodType) return sum + problemsIn(part);
    return typeof part === 'object' && part !== null ? sum + problemsOf(part) : sum;
  }, 0);

const isAnyText = (schema: unknown): boolean =>
  schema instanceof z.ZodString && (schema.def.checks ?? []).length === 0;

/** Keys and metrics that the documentation does not name. */
export async function documentationFaults(app: App): Promise<string[]> {
  const [configuration, observability] = await Promise.all(
    ['docs/configuration.md', 'docs/observability.md'].map((file) => readFile(join(root, file), 'utf8')),
  );
  const registry = new Registry();
  await app.metrics?.(registry);
  return [
    ...Object.entries(app.config).flatMap(([name, { doc }]) =>
      doc.length > 0 && configuration?.includes(`| \`${name}\` |`)
        ? []
        : [`key ${name} of ${app.name} is not documented`],
    ),
    ...registry
      .getMetricsAsArray()
      .flatMap(({ name }) =>
        observability?.includes(`\`${name}\``) ? [] : [`metric ${name} of ${app.name} is not documented`],
      ),
  ];
}

/** `running`: the kinds that the app's workers run. */
export function kindFaults(app: App, running: readonly AnyKind[]): string[] {
  const declared = new Map(app.kinds?.map((kind) => [kind.name, kind]));
  return running.flatMap((kind) => {
    const declaration = declared.get(kind.name);
    if (!declaration) return [`kind ${kind.name} of ${app.name} is not declared`];
    return [
      ...(kind.isPublic === (declaration.public ?? false)
        ? []
        : [
            `kind ${kind.name} of ${app.name} is ${kind.isPublic ? 'public and declared internal' : 'internal and declared public'}`,
          ]),
      ...(kind.scope === 'tenant' || kind.acrossTenants !== undefined
        ? []
        : [`kind ${kind.name} of ${app.name} works across tenants and does not say why`]),
    ];
  });
}

export function listFaults(apps: readonly App[]): string[] {
  return apps.flatMap(({ name, dependsOn = [] }, place) =>
    dependsOn.flatMap((other) =>
      apps.slice(0, place).some((app) => app.name === other)
        ? []
        : [`${name} depends on ${other}, which is not listed before it`],
    ),
  );
}
