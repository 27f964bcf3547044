import type { Component } from '../engine/database/migrate.ts';
import { serverComponent } from '../server/component.ts';
import type { App } from './app.ts';

/** Everything beside the engine that has tables of its own, in the order in which it is migrated. */
export const componentsOf = (apps: readonly App[]): readonly Component[] => [
  serverComponent,
  ...apps.map(({ component }) => component),
];

/** The tables of an app, and of those that it depends on. */
export function componentsFor(app: App, apps: readonly App[]): readonly Component[] {
  const needed = apps.filter(({ name }) => app.dependsOn?.includes(name));
  return [...needed.flatMap((other) => componentsFor(other, apps)), app.component];
}
