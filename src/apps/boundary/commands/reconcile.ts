import type { Command } from 'commander';
import { exitCodes } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { Progress } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { PeerReconciliation } from '../reconcile/reconcile.ts';
import type { StreamId } from '../store/store.ts';
import { chosenStream, nodeFrom, type StreamOptions, withStream, zonesGroup } from './frame.ts';
import { offset } from './offset.ts';
import { withPeer } from './peer.ts';

/** `tallyman zones reconcile`: what both zones have of a stream, compared over the line. */
export function addReconcile(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  withJson(withStream(zonesGroup(program).command('reconcile')))
    .description(
      'compare both zones: what crossed when, what did not, and which side was changed; exits with 1 if they differ',
    )
    .option('--after <offset>', 'leave out what lies up to this offset', offset)
    .addHelpText(
      'after',
      examples([
        'zones reconcile --to enterprise',
        'zones reconcile --from enterprise --json',
        'zones reconcile --to enterprise --after 1000000',
      ]),
    )
    .action((options: JsonOption & StreamOptions & { readonly after?: number }) =>
      withNode(async (node) => {
        const { settings, store, database } = node;
        const stream = await chosenStream(settings, options);
        const other = stream.from === settings.zone ? stream.to : stream.from;
        const [{ reconcileWithPeer }, keys, { isSignedBy }] = await Promise.all([
          import('../reconcile/reconcile.ts'),
          import('../settings.ts'),
          import('../domain/receipt.ts'),
        ]);
        const finder = keys.keyFinder(settings, await keys.loadReceiptKey(settings.receiptKeyFile));
        const { startedEpoch } = await import('../epochs/started.ts');
        const { epoch } = (await store.state(stream)) ?? {};
        const started = epoch === undefined ? undefined : await startedEpoch(database, stream, epoch);
        const progress = new Progress('comparing facts:');
        const result = await withPeer(node, other, (peer) =>
          reconcileWithPeer({
            store,
            stream,
            peer,
            isGenuine: (receipt) => {
              const key = finder(receipt.to, receipt.keyId);
              return key !== undefined && isSignedBy(receipt, key);
            },
            ...(started && { epochStart: { offset: started.boundary, chain: started.chain } }),
            ...(options.after !== undefined && { after: options.after }),
            onProgress: (done, total) => progress.show(done, total),
            signal: new AbortController().signal,
          }),
        ).finally(() => progress.end());
        show(options.json, resultJson(stream, result), () => summaryOf(stream, result));
        if (!result.isInAgreement) process.exitCode = exitCodes.failed;
      }),
    );
}

const resultJson = ({ from, to }: StreamId, result: PeerReconciliation) => ({
  from_zone: from,
  to_zone: to,
  in_agreement: result.isInAgreement,
  equal: result.equal,
  gaps: result.gaps,
  replaced: result.replaced,
  crossed: result.crossed.map(({ from: first, to: last, at }) => ({
    from_offset: first,
    to_offset: last,
    at,
  })),
  not_crossed: result.notCrossed
    ? { from_offset: result.notCrossed.from, to_offset: result.notCrossed.to }
    : null,
  tampered: result.tampered.map(({ side, offset, messageId, what }) => ({
    side,
    offset,
    message_id: messageId,
    what,
  })),
  problems: result.problems,
  copied_receipts: result.copied,
  copied_quarantined: result.copiedQuarantined,
});

function summaryOf({ from, to }: StreamId, result: PeerReconciliation): string {
  const { crossed, notCrossed, tampered, problems, equal, gaps, replaced, copied, copiedQuarantined } =
    result;
  const first = crossed[0];
  const last = crossed.at(-1);
  return [
    result.isInAgreement ? `${from} → ${to}: both zones agree.` : `${from} → ${to}: THE ZONES DIFFER.`,
    `${count(equal, 'fact')} the same on both sides, ${count(gaps, 'gap record')}.`,
    ...(replaced > 0
      ? [
          `At ${count(replaced, 'offset')} of a former epoch the two sides have other facts: zone "${from}" was restored from a backup.`,
        ]
      : []),
    ...(first && last
      ? [
          `Receipts cover offsets ${first.from} to ${last.to}, from ${first.at.toISOString()} to ${last.at.toISOString()}.`,
        ]
      : ['There are no receipts.']),
    ...(notCrossed ? [`Not crossed yet: offsets ${notCrossed.from} to ${notCrossed.to}.`] : []),
    ...(copied > 0 ? [`${count(copied, 'receipt')} copied that were missing here.`] : []),
    ...(copiedQuarantined > 0
      ? [
          `${count(copiedQuarantined, 'fact')} in quarantine copied that were missing here: see facts quarantine.`,
        ]
      : []),
    ...tampered.map(
      ({ side, offset, messageId, what }) =>
        `Changed on the side of the ${side}: fact ${offset} "${messageId}": ${what}`,
    ),
    ...problems,
  ].join('\n');
}
