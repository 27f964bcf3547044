/** A worker that delivers, in a process of its own, to be killed. It ends when its parent does. */

import { webhookKinds } from '../../../../src/apps/webhooks/delivery/kinds.ts';
import { Tallyman } from '../../../../src/engine/tallyman.ts';
import { SecretBox } from '../../../../src/secrets/box.ts';

const { url, master, policy } = JSON.parse(process.argv[2] ?? '{}');
process.on('disconnect', () => process.exit(0));

const tallyman = await Tallyman.open({ databaseUrl: url, poolSize: 6, applicationName: 'webhook worker' });
const worker = tallyman.worker({
  kinds: webhookKinds({
    database: tallyman.database,
    box: new SecretBox(Buffer.from(master, 'base64')),
    policy,
  }),
  pollIntervalMs: 100,
  // What a killed worker held is taken over by its presence; a starved one must not lose what it is at.
  leaseMs: 60_000,
  recoverIntervalMs: 200,
});
await worker.start();
process.send?.('ready');
