import { EventCatalogue } from '../events/catalogue.ts';
import { engineEventTypes } from '../events/types.ts';
import type { App } from './app.ts';

/** Every event that the engine and the apps emit. */
export const catalogueOf = (apps: readonly App[]): EventCatalogue =>
  new EventCatalogue([...engineEventTypes, ...apps.flatMap(({ events }) => events ?? [])]);
