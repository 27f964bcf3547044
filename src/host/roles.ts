/**
 *   admin      everything, keys included
 *   operator   looks at and acts on jobs, lanes, dead letters, schedules, webhooks, shelf labels
 *   auditor    looks at everything, the audit included; changes nothing
 *   producer   enqueues jobs, publishes events, changes products and what labels show; looks at jobs
 *   guest      somebody outside: sees what its key's `access` names, and nothing else
 */
export const roles = ['admin', 'operator', 'auditor', 'producer', 'guest'] as const;
export type Role = (typeof roles)[number];

export const readers: readonly Role[] = ['admin', 'operator', 'auditor'];
export const operators: readonly Role[] = ['admin', 'operator'];
export const producers: readonly Role[] = ['admin', 'operator', 'producer'];
export const admins: readonly Role[] = ['admin'];
/** Everybody of the tenant itself. */
export const anyone: readonly Role[] = ['admin', 'operator', 'auditor', 'producer'];
export const guests: readonly Role[] = ['guest'];

/** The tenant whose keys also manage what all tenants share: tenants, queues, metrics. */
export const homeTenant = 'default';
