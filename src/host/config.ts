import { coreKeys } from '../config/keys.ts';
import { type ConfigSchema, coreContradictions, type LoadOptions, readConfig } from '../config/load.ts';
import type { App } from './app.ts';

/** Every configuration key: those of the core, and those of each app. */
export function configSchema(apps: readonly App[]): ConfigSchema {
  return {
    keys: Object.assign({}, coreKeys, ...apps.map((app) => app.config)),
    contradictions: [coreContradictions, ...apps.flatMap(({ contradictions }) => contradictions ?? [])],
  };
}

export const loadConfig = (apps: readonly App[], options: LoadOptions = {}) =>
  readConfig(configSchema(apps), options).config;
