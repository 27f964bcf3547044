import type { RecentTenants } from './recent-tenants.ts';

/** A request that waited for a lock did not use the processor all that time. */
const longestPauseMs = 250;

/**
 * Large requests of a tenant take at most `percent` of the time while other tenants send requests: after each one the tenant
 * pauses, and those of others find processor and disk free.
 */
export function pausesBesideOthers(
  recent: RecentTenants,
  percent: number,
): (tenantId: string, tookMs: number) => number {
  return (tenantId, tookMs) =>
    recent.isAlone(tenantId) ? 0 : Math.min(longestPauseMs, tookMs * (100 / percent - 1));
}
