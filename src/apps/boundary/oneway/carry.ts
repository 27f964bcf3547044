/** One-way mode as a part of a node that runs: a stream leaves into a folder, and another one comes in from a folder. */
import { mkdir } from 'node:fs/promises';
import { messageOf } from '../../../engine/errors.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import type { ZonePair } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { signReceipt } from '../domain/receipt.ts';
import type { CarrierOptions } from '../handoff/carrier.ts';
import type { NodeParts } from '../node.ts';
import type { BoundaryNode } from '../rpc/service.ts';
import { badFile, keyFinder, type PeerSettings, type Settings } from '../settings.ts';
import type { StreamId } from '../store/store.ts';
import { Inbox, type InboxOptions, type InboxReport, type Missing } from './inbox.ts';
import { type OutboxOptions, oneWay } from './outbox.ts';

/** One process at a time carries, under the stream's lock: the name tells this node from others, not processes apart. */
export const instanceOf = (zone: string): string => `node of ${zone}`;

/** How often the inbox is looked at. */
const lookMs = 1000;

export async function makeFolders(peers: readonly PeerSettings[]): Promise<void> {
  for (const { zone, outbox, inbox } of peers)
    for (const [name, folder] of Object.entries({ outbox, inbox }))
      if (folder !== undefined)
        await mkdir(folder, { recursive: true }).catch((error: unknown) => {
          throw badFile(`boundary.peers.${zone}.${name}`, folder, messageOf(error));
        });
}

export function outboxOptions(
  { store, objects, receiptKey }: Pick<BoundaryNode, 'store' | 'objects' | 'receiptKey'>,
  stream: StreamId,
  folder: string,
): OutboxOptions {
  return { store, objects, stream, key: receiptKey, folder, instance: instanceOf(stream.from) };
}

export const toOutbox = (
  node: BoundaryNode,
  stream: StreamId,
  { outbox, resend }: PeerSettings & { readonly outbox: string },
): CarrierOptions['carry'] => oneWay({ ...outboxOptions(node, stream, outbox), ...(resend && { resend }) });

export interface InboxParts extends Pick<NodeParts, 'store' | 'objects'> {
  readonly settings: Pick<Settings, 'zone' | 'peers'>;
}

/**
 * Fails while files are missing or cut off, or there are some that cannot be taken, so that the hand-off says so until that is over.
 */
export function fromInbox(
  { settings, store, objects }: InboxParts,
  { receiptKey, logger }: Pick<BoundaryNode, 'receiptKey' | 'logger'>,
  { tenantId, from, to }: StreamId,
  folder: string,
  more: Pick<InboxOptions, 'quietMs'> = {},
): CarrierOptions['carry'] {
  const inbox = new Inbox({
    ...{ store, objects, zone: to, tenantId, folder, ...more },
    keyOf: keyFinder(settings, receiptKey),
    sign: (receipt) => signReceipt(receipt, receiptKey),
  });
  let told: ReadonlySet<string> = new Set();
  return async (waitMs, signal) => {
    const report = await inbox.look(signal);
    for (const { file, why } of report.refused)
      logger.warn({ from, to, file, why }, 'a file of another zone was refused, and moved to refused/');
    for (const file of report.cutOff)
      if (!told.has(file))
        logger.warn(
          { from, to, file },
          'a file of another zone ends too early, and has not grown for a while',
        );
    told = new Set(report.cutOff);
    const taken = report.imported.reduce((sum, each) => sum + each.taken, 0);
    if (taken > 0) logger.info({ from, to, facts: taken }, 'facts were taken from files of another zone');
    const trouble = troubleOf({ from, to }, report);
    if (trouble !== undefined) throw trouble;
    if (taken === 0) await pause(Math.min(waitMs, lookMs), signal);
    return taken;
  };
}

function troubleOf(stream: ZonePair, { failed, held, missing, waiting, cutOff }: InboxReport): unknown {
  if (failed !== undefined) return failed;
  const [first] = held;
  const [gap] = missing;
  const [short] = cutOff;
  const troubles = [
    ...(first ? [fileHeld(first, held.length - 1)] : []),
    ...(gap ? [filesMissing(gap, waiting.length)] : []),
    ...(short === undefined ? [] : [fileCutOff(stream, short)]),
  ];
  if (troubles.length === 0) return undefined;
  const reason = first?.error.reason ?? (gap ? 'files_missing' : 'file_cut_off');
  return new BoundaryError(
    'FAILED_PRECONDITION',
    reason,
    troubles.map((each) => each.replace(/\.$/, '')).join('; '),
    { cause: first?.error },
  );
}

function fileHeld({ file, error }: InboxReport['held'][number], others: number): string {
  const which = others === 0 ? `${file} stays` : `${file} and ${others} more stay`;
  const leftOver =
    error.reason === 'epoch_mismatch'
      ? ' Where both zones have gone on in the epoch that is known here, the file is left over from before: remove it.'
      : '';
  return `${which} in the inbox: ${error.message}${leftOver}`;
}

const filesMissing = ({ from, to, fromOffset, toOffset }: Missing, waiting: number): string =>
  `the file with offsets ${fromOffset} to ${toOffset} has not come, and ${waiting} that follow wait for it. In zone "${from}" run: ` +
  `tallyman facts send-again ${fromOffset} ${toOffset} --to ${to}`;

const fileCutOff = ({ from, to }: ZonePair, file: string): string =>
  `${file} ends too early and has not grown for a while. If it is no longer on its way, remove it, and in zone "${from}" send its ` +
  `offsets again: tallyman facts send-again <first> <last> --to ${to}`;
