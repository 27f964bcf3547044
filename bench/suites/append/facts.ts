/**
 * The facts that every system appends: the same content, an id of its own each. Ids are made as the SDK makes them, from what the
 * fact is about: a hash, so that each goes to another page of an index.
 */
import { hash } from 'node:crypto';
import type { FactInput } from '../../../src/apps/boundary/domain/fact.ts';

export const FROM = 'plant-a';
export const TO = 'enterprise';

export const factOf = (n: number): FactInput => ({
  messageId: hash('sha256', `work-order/${n}/done`),
  fromZone: FROM,
  toZone: TO,
  producedAt: 1_772_755_200_000 + n,
  correlationId: `shift-2026-03-06/${n}`,
  labels: { line: '4', station: 'packing' },
  subject: `work_order:WO-2026-${n}`,
  predicate: 'has_state',
  objectJson: JSON.stringify({
    state: 'done',
    quantity: n % 1000,
    unit: 'pallet',
    operator: 'station-17',
    started_at: '2026-03-06T06:00:00Z',
    ended_at: '2026-03-06T06:17:31Z',
  }),
});

/** For systems that keep a fact as it comes: all of it as one JSON text. */
export const textOf = (fact: FactInput): string => JSON.stringify(fact);
