/** A follower in a process of its own, to be killed. It ends when its parent does. */

import { webhookFollower } from '../../../../src/apps/webhooks/follower.ts';
import { Tallyman } from '../../../../src/engine/tallyman.ts';

const { url, batch } = JSON.parse(process.argv[2] ?? '{}');
process.on('disconnect', () => process.exit(0));

const tallyman = await Tallyman.open({ databaseUrl: url, poolSize: 3, applicationName: 'webhook follower' });
webhookFollower(tallyman.database, { pollMs: 20, batch }).start();
process.send?.('ready');
