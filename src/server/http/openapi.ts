/**
 * The OpenAPI document: what the plugin makes of the routes, with a name for each schema. The plugin repeats a schema wherever
 * it is used; generators of clients make a type of each copy, with names such as `InlineResponse200_4`.
 */

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
interface JsonObject {
  readonly [key: string]: Json;
}

interface Operation {
  readonly operationId?: string;
  readonly requestBody?: { readonly content?: Record<string, MediaType> };
  readonly responses?: Readonly<Record<string, { content?: Record<string, MediaType> }>>;
}

interface MediaType {
  schema?: Json;
}

const methods = ['get', 'put', 'post', 'delete', 'patch'] as const;

/**
 * Moves schemas of requests, answers and the items of lists to `components`, under names that come from the operations:
 * `jobs.show` answers `Job`, `jobs.list` a `JobPage` of them, `jobs.enqueue` takes a `JobsEnqueueRequest`. Schemas that are
 * alike share the first name.
 */
export function nameSchemas<Document extends object>(document: Document): Document {
  const named = structuredClone(document) as Document & {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas?: Record<string, Json> };
  };
  const schemas = new Names();
  const operations = Object.values(named.paths).flatMap((path) =>
    methods.flatMap((method) => path[method] ?? []),
  );
  // Single things first: a list of them refers to their name.
  const isShow = ({ operationId = '' }: Operation): boolean => operationId.endsWith('.show');
  for (const operation of [...operations.filter(isShow), ...operations.filter((each) => !isShow(each))]) {
    const { operationId, requestBody, responses = {} } = operation;
    if (operationId === undefined) continue;
    splitText(requestBody?.content);
    const body = requestBody?.content?.['application/json'];
    if (body?.schema !== undefined) body.schema = schemas.put(body.schema, `${pascal(operationId)}Request`);
    for (const [status, { content }] of Object.entries(responses)) {
      const answer = content?.['application/json'];
      if (answer?.schema !== undefined)
        answer.schema = /^[45]/.test(status)
          ? schemas.put(answer.schema, 'Error')
          : answerOf(answer.schema, operationId, schemas);
    }
  }
  named.components = { ...named.components, schemas: schemas.byName() };
  return named;
}

function answerOf(schema: Json, operationId: string, schemas: Names): Json {
  const [noun = '', verb = ''] = operationId.split('.');
  if (verb === 'show') return schemas.put(schema, singular(noun));
  const items = itemsOf(schema);
  if (items === undefined) return schemas.put(schema, `${pascal(operationId)}Response`);
  const { list, item } = items;
  const name = verb === 'list' ? singular(noun) : pascal(operationId);
  const listed = {
    ...list,
    properties: { ...list.properties, items: { type: 'array', items: schemas.put(item, name) } },
  };
  return schemas.put(listed as Json, `${name}Page`);
}

/** The items of `{items: [...]}`, if they are objects. */
function itemsOf(schema: Json): { list: JsonObject & { properties: JsonObject }; item: Json } | undefined {
  if (!isObject(schema) || !isObject(schema.properties)) return undefined;
  const { items } = schema.properties;
  if (!isObject(items) || items.type !== 'array' || !isObject(items.items) || items.items.type !== 'object')
    return undefined;
  return { list: { ...schema, properties: schema.properties }, item: items.items };
}

/** A body that may be JSON or a text, such as CSV: each type of content gets its own part of the schema. */
function splitText(content: Record<string, MediaType> = {}): void {
  const types = Object.entries(content);
  if (types.length < 2) return;
  for (const [type, { schema }] of types) {
    if (!isObject(schema) || !Array.isArray(schema.anyOf)) continue;
    const isText = (part: Json): boolean => isObject(part) && part.type === 'string';
    const parts = (schema.anyOf as Json[]).filter((part) => isText(part) === type.startsWith('text/'));
    const [only] = parts;
    if (only !== undefined)
      content[type] = { schema: parts.length === 1 ? only : { ...schema, anyOf: parts } };
  }
}

/** Names for schemas, each schema once. */
class Names {
  readonly #names = new Map<string, string>();
  readonly #schemas = new Map<string, Json>();

  /** A reference to it; what is not worth a name stays as it is. */
  put(schema: Json, wanted: string): Json {
    if (
      !isObject(schema) ||
      (schema.type !== 'object' && schema.anyOf === undefined && schema.oneOf === undefined)
    )
      return schema;
    const text = JSON.stringify(schema);
    const name = this.#names.get(text) ?? this.#free(wanted);
    this.#names.set(text, name);
    this.#schemas.set(name, schema);
    return { $ref: `#/components/schemas/${name}` };
  }

  byName(): Record<string, Json> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  #free(wanted: string): string {
    for (let i = 1; ; i += 1) {
      const name = i === 1 ? wanted : `${wanted}${i}`;
      if (!this.#schemas.has(name)) return name;
    }
  }
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** `dead_letters.redrive_many` is `DeadLettersRedriveMany`. */
const pascal = (name: string): string =>
  name.replace(/(?:^|[^a-zA-Z0-9]+)([a-zA-Z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** `dead_letters` is `DeadLetter`, `batteries` is `Battery`, `audit` is `AuditEntry`. */
function singular(noun: string): string {
  const name = pascal(noun);
  if (name.endsWith('ies')) return `${name.slice(0, -3)}y`;
  if (/(ch|sh|x|ss)es$/.test(name)) return name.slice(0, -2);
  return name.endsWith('s') && !name.endsWith('ss') ? name.slice(0, -1) : `${name}Entry`;
}
