/**
 * The part of https://standardschema.dev that a kind needs. Zod, Valibot, ArkType and others implement it. The input is
 * what a schema accepts, the output what it makes of that: defaults filled in, texts made to numbers.
 */
export interface StandardSchema<Output = unknown, Input = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problem: string; readonly path: string };

/** Checks a value; names the path of the first field that is wrong. */
export function check<T>(schema: StandardSchema<T>, value: unknown): Checked<T> | Promise<Checked<T>> {
  const result = schema['~standard'].validate(value);
  return result instanceof Promise ? result.then(toChecked<T>) : toChecked(result);
}

function toChecked<T>(result: SchemaResult<T>): Checked<T> {
  if (!result.issues) return { ok: true, value: result.value };
  const issue = result.issues[0];
  const path = (issue?.path ?? [])
    .map((part) => String(typeof part === 'object' ? part.key : part))
    .join('.');
  return { ok: false, problem: issue?.message ?? 'is not valid', path };
}
