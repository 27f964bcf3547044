import type { Component } from '../engine/database/migrate.ts';
import { eventsComponent } from '../events/component.ts';
import { serverComponent } from '../server/component.ts';
import type { App } from './app.ts';

/** Every component besides the engine that has tables, in the order of migration. */
export const componentsOf = (apps: readonly App[]): readonly Component[] => [
  serverComponent,
  eventsComponent,
  ...apps.map(({ component }) => component),
];

/** The tables of an app, of the apps it depends on, and of events, which every app may emit. */
export function componentsFor(app: App, apps: readonly App[]): readonly Component[] {
  return [eventsComponent, ...withDependencies(app, apps).map(({ component }) => component)];
}

const withDependencies = (app: App, apps: readonly App[]): readonly App[] => [
  ...apps
    .filter(({ name }) => app.dependsOn?.includes(name))
    .flatMap((other) => withDependencies(other, apps)),
  app,
];
