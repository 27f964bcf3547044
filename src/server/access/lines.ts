import type { Caller } from '../../host/route.ts';

/*
 * The line in which a request waits for its turn. Each tenant has one. Callers who may see no more of a tenant than everybody
 * have another one, with fewer turns: however many they are, the tenant itself goes on.
 */

/** No tenant has such an id. */
const strangers = 'public ';

/** Undefined: a caller of whom nothing is known yet. */
export const lineOf = (caller: Pick<Caller, 'tenantId' | 'role'> | undefined): string => {
  if (caller === undefined) return strangers;
  return caller.role === 'public' ? `${strangers}${caller.tenantId}` : caller.tenantId;
};

/** How many turns a line has, where a tenant has so many. */
export const turnsOf = (line: string, ofTenant: number): number =>
  line.startsWith(strangers) ? Math.max(1, Math.floor(ofTenant / 2)) : ofTenant;
