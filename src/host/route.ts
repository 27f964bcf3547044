import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import type { Queryable } from '../engine/database/database.ts';
import type { TenantScope } from '../engine/database/tenant.ts';
import type { Enqueued } from '../engine/jobs/enqueue.ts';
import { defaultPageLimit, maxPageLimit } from '../engine/paging.ts';
import { isId, isKeepable } from '../engine/validate.ts';
import type { NewEvent } from '../events/emit.ts';
import type { Role } from './roles.ts';
import type { Services } from './services.ts';

/** The caller: a key; on loopback while no key exists, anybody; or, on a public route, anybody anywhere. */
export interface Caller {
  readonly tenantId: string;
  /** `public`: came without a key, or with one of another tenant, to a route that needs none. */
  readonly role: Role | 'public';
  /** What a key of the role `guest` may see; see `App.access`. */
  readonly access: string | null;
  /** `key:<id>`, `anonymous` or `public`. */
  readonly actor: string;
}

type Parsed<S> = S extends z.ZodType ? z.output<S> : undefined;

/** Headers that a route may look at. */
export const calledWith = ['accept', 'accept-language', 'content-type', 'if-none-match'] as const;

/** An accepted request: inside its transaction, in its tenant, with everything checked. */
export interface Call<P, Q, B> {
  readonly caller: Caller;
  readonly scope: TenantScope;
  readonly services: Services;
  readonly correlationId: string;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  /** The body of an upload; empty on other routes. */
  readonly bytes: Uint8Array;
  /** What the caller sent and prefers; no keys, no cookies. */
  readonly headers: Pick<IncomingHttpHeaders, (typeof calledWith)[number]>;
}

/**
 * An answer that is not just JSON with the route's status: another type of content, more headers, another status. A text or
 * bytes go out as they are. For routes that read: the answer to a write is kept under its `Idempotency-Key`, as JSON, and a
 * write that answers with a `Reply` is rolled back.
 */
export class Reply {
  readonly body: string | Uint8Array | null;
  readonly type: string;
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    type: string,
    body: string | Uint8Array | null,
    more: { readonly status?: number; readonly headers?: Readonly<Record<string, string>> } = {},
  ) {
    this.type = type;
    this.body = body;
    this.status = more.status;
    this.headers = more.headers ?? {};
  }
}

/** A route that answers without a key. It runs in the transaction of one tenant all the same. */
export interface Public {
  /** Why anybody may read it; the conformance test lists these. */
  readonly why: string;
  /**
   * Whose rows it shows, from what the request names; undefined answers NOT_FOUND. `on` sees all tenants. A key of this
   * tenant counts; a key of another one counts as none.
   */
  readonly tenantOf: (
    on: Queryable,
    request: { readonly params: unknown; readonly query: unknown; readonly body: unknown },
  ) => Promise<string | undefined>;
}

/** A body that is kept as the bytes that came, with a limit of its own. */
export interface Upload {
  readonly types: readonly string[];
  readonly maxBytes: number;
}

/**
 * A route declares its parameters, its roles and its handler. Everything around that (keys, roles, limits, the tenant's
 * transaction, idempotency, audit, errors, the OpenAPI page) is in register.ts.
 */
interface Declaration<
  P extends z.ZodType | undefined,
  Q extends z.ZodType | undefined,
  B extends z.ZodType | undefined,
> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: string;
  /** `jobs.cancel`: the name of the operation, in OpenAPI and in the audit. */
  readonly action: string;
  readonly summary: string;
  /** Keys of these roles. Empty on a public route alone. */
  readonly roles: readonly Role[];
  readonly public?: Public;
  /** Only for keys of the home tenant: it touches what all tenants share, and can see rows of all tenants. */
  readonly home?: boolean;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  readonly response: z.ZodType;
  /** Default 200; 201: something was created, 204: the answer is empty. */
  readonly status?: 200 | 201 | 202 | 204;
  /** Types of content beside JSON that the body may have, such as `text/csv`; it is a text then. */
  readonly consumes?: readonly string[];
  /** The body is bytes of one of these types: `call.bytes`. `body` is not declared then. */
  readonly upload?: Upload;
  /** A POST that only reads: no audit line, no `Idempotency-Key`. */
  readonly readsOnly?: boolean;
  /** `handle` returns bytes of this type, or a `Reply` with one of several types. Default: JSON. Not for writes. */
  readonly produces?: string | readonly string[];
}

/** A job as callers of the API describe it. */
export interface JobRequest {
  readonly kind: string;
  readonly payload?: unknown;
  readonly queue?: string | undefined;
  readonly priority?: number | undefined;
  readonly lane?: string | undefined;
  readonly delay_ms?: number | undefined;
  readonly scheduled_at?: Date | undefined;
  readonly dedupe_key?: string | undefined;
  readonly max_attempts?: number | undefined;
  readonly correlation_id?: string | undefined;
  readonly latest_only?: boolean | undefined;
}

/** A route that does nothing but enqueue, or emit an event: its requests share transactions instead of having one each. */
export type Enqueues<B> = {
  /** The answer: for each job, or for the event, its id, and whether it was there before. */
  readonly answer: (enqueued: readonly Enqueued[]) => unknown;
} & (
  | { readonly jobs: (body: B) => readonly JobRequest[]; readonly event?: undefined }
  | { readonly event: (body: B) => NewEvent; readonly jobs?: undefined }
);

export type Route<
  P extends z.ZodType | undefined,
  Q extends z.ZodType | undefined,
  B extends z.ZodType | undefined,
> = Declaration<P, Q, B> &
  (
    | {
        readonly handle: (call: Call<Parsed<P>, Parsed<Q>, Parsed<B>>) => Promise<unknown>;
        readonly enqueues?: undefined;
      }
    | { readonly handle?: undefined; readonly enqueues: Enqueues<Parsed<B>> }
  );

// biome-ignore lint/suspicious/noExplicitAny: a list of routes with different parameters has no other common type
export type AnyRoute = Route<any, any, any>;

export function route<
  P extends z.ZodType | undefined = undefined,
  Q extends z.ZodType | undefined = undefined,
  B extends z.ZodType | undefined = undefined,
>(definition: Route<P, Q, B>): AnyRoute {
  return definition;
}

// ── shapes that many routes share ────────────────────────────────────────────────────────────────────────────────

export const id = z
  .string()
  .refine(isId, { error: 'expected an id: a number' })
  .meta({ pattern: '^\\d{1,19}$' });

/** A text that is not empty, of at most this many bytes. */
export const text = (maxBytes: number) =>
  z
    .string()
    .min(1)
    .refine((value) => Buffer.byteLength(value) <= maxBytes, { error: `must be at most ${maxBytes} bytes` })
    .refine(isKeepable, { error: 'must not hold a NUL or half a surrogate pair' });

/**
 * An object of at most `most` values, checked up to the first that is wrong: each problem takes memory and time, and a record of
 * zod has neither a maximum nor a bound on its problems.
 */
export function recordOf<V extends z.ZodType>(
  most: number,
  key: z.ZodString,
  value: V,
): z.ZodType<Readonly<Record<string, z.output<V>>>> {
  const { $schema: _, ...documented } = z.toJSONSchema(z.record(key, value), { io: 'input' });
  const checked = z
    .unknown()
    .superRefine((given, context) => {
      const refuse = (message: string, path: readonly string[] = []): void =>
        context.addIssue({ code: 'custom', message, path: [...path] });
      if (typeof given !== 'object' || given === null || Array.isArray(given))
        return refuse('expected an object');
      const { length } = Object.keys(given);
      if (length > most) return refuse(`must have at most ${most} entries, has ${length}`);
      for (const [name, each] of Object.entries(given)) {
        const { error } = key.safeParse(name);
        if (error) return refuse(`the name of an entry: ${error.issues[0]?.message}`);
        const [issue] = value.safeParse(each).error?.issues ?? [];
        if (issue) return refuse(issue.message, [name, ...issue.path.map(String)]);
      }
    })
    .meta({ ...documented, maxProperties: most });
  return checked as unknown as z.ZodType<Readonly<Record<string, z.output<V>>>>;
}

export const timestamp = z.iso.datetime({ offset: true }).transform((value) => new Date(value));

export const page = {
  limit: z.coerce.number().int().min(1).max(maxPageLimit).default(defaultPageLimit),
  cursor: id.optional(),
};

/** The same for lists in the order of names: the cursor is a name. */
export const pageByNames = { ...page, cursor: text(512).optional() };

export const pageOf = <T extends z.ZodType>(item: T) =>
  z.object({ items: z.array(item), next_cursor: z.string().nullable() });

export const idParams = z.strictObject({ id });
