/** For writing your own app, or for running the product with some apps in your own process. */
export { key, optionalUrl, type ValuesOf, whole } from '../config/key.ts';
export type { Component } from '../engine/database/migrate.ts';
export {
  type App,
  type AppDefinition,
  defineApp,
  type Health,
  type Host,
  type KindDeclaration,
  type RouteHost,
  type RunningApp,
  settingsOf,
} from './app.ts';
export { apps } from './apps.ts';
export type { CommandFrame, Session } from './cli/session.ts';
export { configSchema, loadConfig } from './config.ts';
export { partNames, partsOf } from './parts.ts';
export { type Role, roles } from './roles.ts';
export { type AnyRoute, type Call, route } from './route.ts';
export { type ServeOptions, type Serving, serve } from './serve.ts';
export type { Moment, Subject, SubjectPage, TenantQueries } from './timeline.ts';
