import type { Command } from 'commander';
import { examples, type JsonOption, withJson } from '../../cli/options.ts';
import { show } from '../../cli/output/print.ts';
import { Progress } from '../../cli/output/terminal.ts';
import { count } from '../../cli/output/text.ts';
import { withTallyman } from '../../cli/session.ts';
import { given } from '../../given.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { iotComponent } from '../iot/component.ts';
import { rfidComponent } from './component.ts';
import { replayOf } from './intake/replay.ts';
import { eventsComponent } from '../../events/component.ts';

interface ReplayCommandOptions extends JsonOption {
  readonly from?: string;
  readonly to?: string;
  readonly device?: string;
  readonly tenant: string;
}

export function addReplay(program: Command): void {
  withJson(program.command('replay'))
    .description('process the tag reads in iot.tag_reads that nobody has processed, each once')
    .option('--from <where>', 'an id or a time, included (default: from the checkpoint)')
    .option('--to <where>', 'an id, included, or a time, not included (default: to the newest)')
    .option('--device <serial>', 'of this device alone')
    .option('-t, --tenant <id>', 'whose device it is', 'default')
    .addHelpText(
      'after',
      `${examples(['replay', 'replay --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z --device fx-7'])}

It may be stopped at any time, and run beside intake: what was processed before
has no second effect.`,
    )
    .action((options: ReplayCommandOptions) =>
      withTallyman(
        async ({ tallyman }) => {
          const { from, to, device, tenant: tenantId } = options;
          const stopping = new AbortController();
          onStopSignal(() => stopping.abort());
          const progress = new Progress('replaying');
          const counts = await replayOf(tallyman)
            .replay({
              tenantId,
              signal: stopping.signal,
              onProgress: ({ read, total }) => progress.show(read, total),
              ...given({ from, to, device }),
            })
            .finally(() => progress.end());
          show(options.json, counts, () => {
            const { read, processed, duplicates, failed } = counts;
            return `${count(read, 'read')}: ${processed} processed, ${duplicates} had been before, ${failed} failed.`;
          });
        },
        [eventsComponent, iotComponent, rfidComponent],
      ),
    );
}
