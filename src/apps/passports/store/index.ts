/**
 * What the app has stored, read for one tenant: `on` is a transaction or database that sees one tenant's rows
 * (`context.tenant`, a route's scope, `new TenantDatabase(database, tenantId)`). `find…` answers undefined where there is
 * nothing, `require…` throws NOT_FOUND.
 */
export * from './audit.ts';
export * from './documents.ts';
export * from './exports.ts';
export * from './facts.ts';
export * from './item-events.ts';
export * from './passports.ts';
export * from './products.ts';
export * from './rules.ts';
export * from './snapshots.ts';
export * from './versions.ts';
