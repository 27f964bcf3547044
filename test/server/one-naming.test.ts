import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import { cliOn } from '../cli/support.ts';
import { bury, furnish, server } from './support.ts';

test('API-2: --json of the command line is what the API answers, for every noun', {
  timeout: 600_000,
}, async () => {
  const test = await server();
  const admin = await test.as('admin');
  const made = await furnish(test, admin);
  const tries = await admin('POST', '/v1/jobs', { kind: 'noop', payload: { camelCase: { innerKey: 1 } } });
  await bury(test, tries.body.id);
  await admin('POST', '/v1/events', {
    event_type: 'pallet.moved',
    aggregate_type: 'pallet',
    aggregate_id: 'P',
  });
  const cli = cliOn(test.databaseUrl, {
    env: { TALLYMAN_SECRET_KEY: Buffer.alloc(32, 7).toString('base64') },
  });
  const { job, dead, webhook, label, passport } = made;
  for (const [path, ...args] of [
    ['/v1/jobs', 'jobs', 'list'],
    [`/v1/jobs/${job}`, 'jobs', 'show', job],
    ['/v1/lanes', 'lanes', 'list'],
    ['/v1/dead-letters', 'dead-letters', 'list'],
    [`/v1/dead-letters/${dead}`, 'dead-letters', 'show', dead],
    ['/v1/queues', 'queues', 'list'],
    ['/v1/schedules', 'schedules', 'list'],
    ['/v1/keys', 'keys', 'list'],
    ['/v1/tenants', 'tenants', 'list'],
    ['/v1/events', 'events', 'list'],
    ['/v1/event-types', 'events', 'types'],
    ['/v1/webhooks', 'webhooks', 'list'],
    [`/v1/webhooks/${webhook}`, 'webhooks', 'show', webhook],
    ['/v1/labels', 'labels', 'list'],
    [`/v1/labels/${label}`, 'labels', 'show', label],
    ['/v1/passports', 'passports', 'list'],
    [`/v1/passports/${passport}`, 'passports', 'show', passport],
    ['/v1/passports/products', 'passports', 'products', 'list'],
    ['/v1/passports/documents', 'passports', 'documents'],
    ['/v1/passports/rules', 'passports', 'rules', 'list'],
    ['/v1/passports/exports', 'passports', 'exports', 'list'],
  ] as const) {
    const command = args as readonly string[];
    // What changes in between by itself, as when a key was last used, is asked for again.
    let before: unknown;
    let json: unknown;
    let after = await admin('GET', path as string);
    do {
      before = after.body;
      const { stdout, stderr } = await cli(...command, '--json');
      expect(stderr).toBe('');
      json = JSON.parse(stdout);
      after = await admin('GET', path as string);
      expect(after.status).toBe(200);
    } while (!isDeepStrictEqual(before, after.body));
    expect({ command, json }).toEqual({ command, json: after.body });
  }
});
