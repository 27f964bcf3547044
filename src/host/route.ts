import { z } from 'zod';
import type { TenantScope } from '../engine/database/tenant.ts';
import { defaultPageLimit, maxPageLimit } from '../engine/paging.ts';
import { isId } from '../engine/validate.ts';
import { isKeepable } from '../server/http/body.ts';
import type { Role } from './roles.ts';
import type { Services } from './services.ts';

/** The caller: a key, or, on loopback while no key exists, anybody. */
export interface Caller {
  readonly tenantId: string;
  readonly role: Role;
  /** `key:<id>` or `anonymous`. */
  readonly actor: string;
}

type Parsed<S> = S extends z.ZodType ? z.output<S> : undefined;

/** An accepted request: inside its transaction, in its tenant, with everything checked. */
export interface Call<P, Q, B> {
  readonly caller: Caller;
  readonly scope: TenantScope;
  readonly services: Services;
  readonly correlationId: string;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
}

/**
 * A route declares its parameters, its roles and its handler. Everything around that (keys, roles, limits, the tenant's
 * transaction, idempotency, audit, errors, the OpenAPI page) is in register.ts.
 */
export interface Route<
  P extends z.ZodType | undefined,
  Q extends z.ZodType | undefined,
  B extends z.ZodType | undefined,
> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: string;
  /** `jobs.cancel`: the name of the operation, in OpenAPI and in the audit. */
  readonly action: string;
  readonly summary: string;
  readonly roles: readonly Role[];
  /** Only for keys of the home tenant: it touches what all tenants share, and can see rows of all tenants. */
  readonly home?: boolean;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  readonly response: z.ZodType;
  /** Default 200; 201: something was created, 204: the answer is empty. */
  readonly status?: 200 | 201 | 202 | 204;
  /** `handle` returns bytes of this type. Default: JSON. */
  readonly produces?: string;
  /** Queues to which the route may have enqueued: their workers are woken after the commit. */
  readonly wakes?: readonly string[];
  readonly handle: (call: Call<Parsed<P>, Parsed<Q>, Parsed<B>>) => Promise<unknown>;
}

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

export const timestamp = z.iso.datetime({ offset: true }).transform((value) => new Date(value));

export const page = {
  limit: z.coerce.number().int().min(1).max(maxPageLimit).default(defaultPageLimit),
  cursor: id.optional(),
};

export const pageOf = <T extends z.ZodType>(item: T) =>
  z.object({ items: z.array(item), next_cursor: z.string().nullable() });

export const idParams = z.strictObject({ id });
