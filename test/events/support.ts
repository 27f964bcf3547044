import { EventCatalogue } from '../../src/events/catalogue.ts';
import { eventsComponent } from '../../src/events/component.ts';
import type { NewEvent } from '../../src/events/emit.ts';
import { Events } from '../../src/events/events.ts';
import { engineEventTypes } from '../../src/events/types.ts';
import { type Bundle, engine } from '../support/engine.ts';

export interface EventScene extends Bundle {
  readonly events: Events;
}

/** An engine with events and nothing else. */
export async function eventScene(): Promise<EventScene> {
  const bundle = await engine({ components: [eventsComponent] });
  const { database } = bundle.tallyman;
  return { ...bundle, events: new Events(database, { catalogue: new EventCatalogue(engineEventTypes) }) };
}

export const moved = (aggregateId: string, more: Partial<NewEvent> = {}): NewEvent => ({
  type: 'pallet.moved',
  aggregateType: 'pallet',
  aggregateId,
  payload: { bay: 'B7' },
  ...more,
});
