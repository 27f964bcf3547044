import type { SealedColumn } from '../../secrets/reseal.ts';
import { headersContext, keyContext, secretContext } from './secrets.ts';

const idOf = ({ endpoint_id = '' }: Readonly<Record<string, string>>): string => endpoint_id;

/** What is kept sealed for endpoints. */
export const sealedInEndpoints: readonly SealedColumn[] = [
  {
    table: 'tallyman_webhooks.endpoint_secrets',
    keys: ['id'],
    also: ['endpoint_id'],
    column: 'sealed',
    context: (row) => secretContext(idOf(row)),
  },
  {
    table: 'tallyman_webhooks.endpoint_keys',
    keys: ['id'],
    also: ['endpoint_id'],
    column: 'sealed',
    context: (row) => keyContext(idOf(row)),
  },
  {
    table: 'tallyman_webhooks.endpoints',
    keys: ['id'],
    column: 'headers_sealed',
    context: ({ id = '' }) => headersContext(id),
  },
];
