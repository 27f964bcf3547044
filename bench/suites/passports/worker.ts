/** A process of workers. Says when it works, and when asked how much processor time it has used since then, in µs. */
import { passportsComponent } from '../../../src/apps/passports/component.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { Tallyman } from '../../../src/index.ts';
import { benchMeans } from './battery.ts';

const engine = await Tallyman.open({
  databaseUrl: process.argv[2] ?? '',
  components: [eventsComponent, passportsComponent],
  retention: { keepMs: 0 },
});
await engine.worker({ kinds: passportKinds(benchMeans()), concurrency: 4 }).start();
const since = process.cpuUsage();
process.on('message', () => {
  const { user, system } = process.cpuUsage(since);
  process.send?.(user + system);
});
process.once('disconnect', () => process.exit(1));
process.send?.('working');
