import type { Command } from 'commander';
import { given } from '../../given.ts';
import { settingsOf } from '../../host/app.ts';
import { examples, type JsonOption, withJson } from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { Progress } from '../../host/cli/output/terminal.ts';
import { count } from '../../host/cli/output/text.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { judgement, movementsOf, rfidKeys } from './config.ts';
import { replayOf } from './intake/replay.ts';
import { CachedDevices } from './reference/cached-devices.ts';
import { ChangeNotices } from './reference/change-notices.ts';

interface ReplayCommandOptions extends JsonOption {
  readonly from?: string;
  readonly to?: string;
  readonly device?: string;
  readonly tenant: string;
}

export function addReplay(program: Command, { withTallyman }: CommandFrame): void {
  withJson(program.command('replay'))
    .description('process the tag reads in iot.tag_reads that nobody has processed, each once')
    .option('--from <where>', 'an id or a time, included (default: from the checkpoint)')
    .option('--to <where>', 'an id, included, or a time, not included (default: to the newest)')
    .option('--device <serial>', 'of this device alone')
    .option('-t, --tenant <id>', 'whose device it is', 'default')
    .addHelpText(
      'after',
      `${examples(['replay', 'replay --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z --device fx-7'])}

You can stop it at any time, and run it while intake runs: a read that was
processed before has no second effect.`,
    )
    .action((options: ReplayCommandOptions) =>
      withTallyman(async ({ tallyman, config }) => {
        const { from, to, device, tenant: tenantId } = options;
        const stopping = new AbortController();
        onStopSignal(() => stopping.abort());
        const progress = new Progress('replaying');
        const { database } = tallyman;
        const devices = new CachedDevices({ database });
        const notices = new ChangeNotices(database, () => devices.drop());
        await notices.start();
        const settings = settingsOf(rfidKeys, config);
        const counts = await replayOf(tallyman, {
          devices,
          judgement: judgement(settings),
          movements: movementsOf(settings),
          maxAttempts: settings['rfid.maxAttempts'],
        })
          .replay({
            tenantId,
            signal: stopping.signal,
            onProgress: ({ read, total }) => progress.show(read, total),
            ...given({ from, to, device }),
          })
          .finally(async () => {
            progress.end();
            await notices.stop();
          });
        show(options.json, counts, () => {
          const { read, processed, duplicates, failed } = counts;
          return `${count(read, 'read')}: ${processed} processed, ${duplicates} had been before, ${failed} failed.`;
        });
      }),
    );
}
