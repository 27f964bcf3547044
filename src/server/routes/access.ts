import { z } from 'zod';
import { given } from '../../given.ts';
import { admins, roles } from '../../host/roles.ts';
import { type Call, id, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import { type AuditRow, listAudit } from '../access/audit.ts';
import { type ApiKey, ApiKeys } from '../access/keys.ts';
import { Tenants } from '../access/tenants.ts';

const keyShape = z.object({
  id: z.string(),
  name: z.string(),
  role: z.enum(roles),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  revoked_at: z.string().nullable(),
  last_used_at: z.string().nullable(),
});

const keyJson = (key: ApiKey) => ({
  id: key.id,
  name: key.name,
  role: key.role,
  created_at: key.createdAt,
  expires_at: key.expiresAt,
  revoked_at: key.revokedAt,
  last_used_at: key.lastUsedAt,
});

const tenantShape = z.object({ id: z.string(), name: z.string(), created_at: z.string() });

const auditShape = z.object({
  id,
  at: z.string(),
  actor: z.string(),
  action: z.string(),
  resource: z.string().nullable(),
  outcome: z.enum(['done', 'refused', 'failed']),
  status: z.number(),
  code: z.string().nullable(),
  correlation_id: z.string().nullable(),
  address: z.string().nullable(),
});

const auditJson = ({ tenantId: _, correlationId, ...event }: AuditRow) => ({
  ...event,
  correlation_id: correlationId,
});

const keysOf = ({ scope, services }: Pick<Call<unknown, unknown, unknown>, 'scope' | 'services'>): ApiKeys =>
  new ApiKeys(scope, services.host.secrets);

export const accessRoutes = [
  route({
    method: 'GET',
    url: '/v1/keys',
    action: 'keys.list',
    summary: 'API keys of this tenant, without their secrets',
    roles: admins,
    response: z.object({ items: z.array(keyShape) }),
    handle: async (call) => ({ items: (await keysOf(call).list()).map(keyJson) }),
  }),
  route({
    method: 'POST',
    url: '/v1/keys',
    action: 'keys.create',
    summary: 'Make an API key; its secret is in this answer and nowhere else',
    roles: admins,
    body: z.strictObject({ name: text(200), role: z.enum(roles), expires_at: timestamp.optional() }),
    status: 201,
    response: keyShape.extend({ key: z.string() }),
    handle: async (call) => {
      const { name, role, expires_at: expiresAt } = call.body;
      const made = await keysOf(call).create({
        tenantId: call.caller.tenantId,
        name,
        role,
        ...given({ expiresAt }),
      });
      return { ...keyJson(made.apiKey), key: made.key };
    },
  }),
  route({
    method: 'DELETE',
    url: '/v1/keys/:id',
    action: 'keys.revoke',
    summary: 'Revoke an API key, from now on',
    roles: admins,
    params: z.strictObject({ id: text(64) }),
    status: 204,
    response: z.null(),
    handle: (call) => keysOf(call).revoke(call.params.id),
  }),
  route({
    method: 'GET',
    url: '/v1/tenants',
    action: 'tenants.list',
    summary: 'All tenants',
    roles: admins,
    home: true,
    response: z.object({ items: z.array(tenantShape) }),
    handle: async ({ scope }) => ({
      items: (await new Tenants(scope).list()).map(({ createdAt, ...tenant }) => ({
        ...tenant,
        created_at: createdAt,
      })),
    }),
  }),
  route({
    method: 'GET',
    url: '/v1/audit',
    action: 'audit.list',
    summary: 'What was done, and what was refused, newest first',
    roles: ['admin', 'auditor'],
    query: z.strictObject({
      ...page,
      actor: text(128).optional(),
      action: text(128).optional(),
      outcome: z.enum(['done', 'refused', 'failed']).optional(),
    }),
    response: pageOf(auditShape),
    handle: async ({ scope, query: { limit, cursor, ...filter } }) => {
      const found = await listAudit(scope, given(filter), given({ limit, cursor }));
      return { items: found.items.map(auditJson), next_cursor: found.nextCursor };
    },
  }),
];
