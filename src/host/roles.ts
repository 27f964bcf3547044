/**
 *   admin      everything, keys included
 *   operator   looks at and acts on jobs, lanes, dead letters, schedules, webhooks, shelf labels
 *   auditor    looks at everything, the audit included; changes nothing
 *   producer   enqueues jobs, publishes events, changes products and what labels show; looks at jobs
 */
export const roles = ['admin', 'operator', 'auditor', 'producer'] as const;
export type Role = (typeof roles)[number];

export const readers: readonly Role[] = ['admin', 'operator', 'auditor'];
export const operators: readonly Role[] = ['admin', 'operator'];
export const producers: readonly Role[] = ['admin', 'operator', 'producer'];
export const admins: readonly Role[] = ['admin'];
export const anyone: readonly Role[] = roles;

/** The tenant whose keys also manage what all tenants share: tenants, queues, metrics. */
export const homeTenant = 'default';
