/** The columns that name a stream in the tables of the boundary. They begin the primary key of each of these tables. */
import type { StreamId } from '../store.ts';

/** For the first four parameters: `keyOf(stream)`. */
export const ofStream = 'tenant_id = $1 and buffer = $2 and from_zone = $3 and to_zone = $4';

export const keyOf = ({ tenantId, buffer, from, to }: StreamId): string[] => [tenantId, buffer, from, to];
