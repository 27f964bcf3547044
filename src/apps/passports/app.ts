import { defineApp } from '../../host/app.ts';
import { passportAccess } from './access.ts';
import { addPassports } from './commands/index.ts';
import { passportsComponent } from './component.ts';
import { passportsKeys } from './config.ts';
import { passportErrors } from './errors.ts';
import { passportEventTypes } from './events.ts';
import { momentsOf, passportsLike } from './timeline.ts';

export const passportsApp = defineApp({
  name: 'passports',
  summary: 'battery passports: documents compiled, signed and labelled, each value provable',
  component: passportsComponent,
  config: passportsKeys,
  contradictions: (config) =>
    (config['passports.signingKey'] === null) === (config['passports.signingKeyId'] === null)
      ? []
      : ['passports.signingKey and passports.signingKeyId belong together: set both, or none'],
  errors: passportErrors,
  access: passportAccess,
  kinds: [
    { name: 'passports.parse-facts' },
    { name: 'passports.build-snapshot' },
    { name: 'passports.compile-passport' },
    { name: 'passports.sign-passport' },
    { name: 'passports.generate-qr' },
    { name: 'passports.activate-version' },
    { name: 'passports.issue-items' },
    { name: 'passports.export-passport' },
    { name: 'passports.audit-heads' },
  ],
  events: passportEventTypes,
  routes: async (host) => (await import('./routes/index.ts')).passportRoutes(host),
  commands: addPassports,
  metrics: async (registry) => (await import('./metrics.ts')).exposePassports(registry),
  timeline: momentsOf,
  search: passportsLike,
  start: async (host, config, observer) =>
    (await import('./start.ts')).startPassports(host, config, observer),
});
