import { z } from 'zod';
import { given } from '../../given.ts';
import { admins, roles } from '../../host/roles.ts';
import { type Call, id, page, pageByNames, pageOf, route, text, timestamp } from '../../host/route.ts';
import { type AuditRow, listAudit } from '../access/audit.ts';
import { ApiKeys } from '../access/keys.ts';
import { Tenants } from '../access/tenants.ts';
import { keyJson, pageJson, tenantJson } from './json.ts';

const keyShape = z.object({
  id: z.string(),
  tenant_id: z.string(),
  name: z.string(),
  role: z.enum(roles),
  access: z.string().nullable().describe('What a guest may see'),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  revoked_at: z.string().nullable(),
  last_used_at: z.string().nullable(),
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
  times: z.number(),
});

const auditJson = ({ tenantId: _, correlationId, ...event }: AuditRow) => ({
  ...event,
  correlation_id: correlationId,
});

const keysOf = ({ scope, services }: Pick<Call<unknown, unknown, unknown>, 'scope' | 'services'>): ApiKeys =>
  new ApiKeys(scope, services.host.secrets);

/** `access`: what keys of guests can name, from all apps. */
export const accessRoutes = (access: readonly string[]) => [
  route({
    method: 'GET',
    url: '/v1/keys',
    action: 'keys.list',
    summary: 'API keys of this tenant, newest first, without their secrets',
    roles: admins,
    query: z.strictObject(pageByNames),
    response: pageOf(keyShape),
    handle: async (call) => pageJson(await keysOf(call).page(given(call.query)), keyJson),
  }),
  route({
    method: 'POST',
    url: '/v1/keys',
    action: 'keys.create',
    summary: 'Make an API key; its secret is in this answer and nowhere else',
    roles: admins,
    body: z.strictObject({
      name: text(200),
      role: z.enum(roles),
      access: z.enum(access).optional().describe('What a guest may see; for the role guest alone'),
      expires_at: timestamp.optional(),
    }),
    status: 201,
    response: keyShape.extend({ key: z.string() }),
    handle: async (call) => {
      const { name, role, access, expires_at: expiresAt } = call.body;
      const made = await keysOf(call).create({
        tenantId: call.caller.tenantId,
        name,
        role,
        ...given({ access, expiresAt }),
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
    summary: 'All tenants, by id',
    roles: admins,
    home: true,
    query: z.strictObject(pageByNames),
    response: pageOf(tenantShape),
    handle: async ({ scope, query }) => pageJson(await new Tenants(scope).page(given(query)), tenantJson),
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
      return pageJson(await listAudit(scope, given(filter), given({ limit, cursor })), auditJson);
    },
  }),
];
