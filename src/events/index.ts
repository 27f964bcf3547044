export { defineEventType, EventCatalogue, type EventType } from './catalogue.ts';
export { eventsComponent } from './component.ts';
export { type Emitted, emit, emitMany, type NewEvent } from './emit.ts';
export { Events, type EventsOptions } from './events.ts';
export { type EventBatch, EventFollower, type EventFollowerOptions } from './follower.ts';
export { purgeEventsDeclaration, purgeEventsKind, purgeEventsSchedule } from './purge.ts';
export {
  currentPosition,
  type DomainEvent,
  type EventFilter,
  type EventPage,
  getEvent,
  readEvents,
} from './read.ts';
export { engineEventTypes } from './types.ts';
