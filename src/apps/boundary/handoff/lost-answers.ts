/**
 * Answers that were lost: the receiver has facts, and the source knows neither the receipt nor what went into quarantine. Before the
 * source confirms these facts it must have both, or a fact in quarantine could be trimmed and never be redriven. By push the source
 * asks for them; by pull the receiver sends them again.
 */
import type { Frontier } from '../domain/delivery.ts';
import type { QuarantinedFact, Receipt } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { quarantinedMessage, receiptMessage } from '../rpc/messages.ts';
import { quarantinedIn } from '../store/quarantined-in.ts';
import type { PullOptions } from './pull.ts';
import type { PushOptions } from './push.ts';
import { keepAnswer } from './source.ts';

const page = 500;

interface Zones {
  readonly fromZone: string;
  readonly toZone: string;
}

/** Keeps what the receiver has kept about offsets after `after`, up to `upTo`. `reached` is its frontier. */
export async function askForAnswers(
  options: Pick<PushOptions, 'store' | 'stream' | 'peer' | 'isGenuine'>,
  { after, upTo, reached }: { readonly after: number; readonly upTo: number; readonly reached: Frontier },
  signal: AbortSignal,
): Promise<void> {
  const { stream, peer } = options;
  const zones = { fromZone: stream.from, toZone: stream.to };
  const { epoch } = reached;
  const found = await crossingsBetween(peer, zones, { after, upTo }, signal);
  // Receipts of a former epoch are for what was here before a restore.
  const receipts = found.receipts.filter((receipt) => receipt.epoch === epoch);
  for (const receipt of receipts) {
    const { fromOffset, toOffset } = receipt;
    const quarantined = found.quarantined.filter(({ offset }) => offset >= fromOffset && offset <= toOffset);
    await keepAnswer(options, { receipt, quarantined });
  }
  if (Number(receipts.at(-1)?.toOffset ?? 0n) >= upTo) return;
  // The receiver's process died before it wrote the receipt: a delivery, even of nothing, completes it.
  const answer = await peer.deliverFacts({ stream: zones, epoch, chainBefore: reached.chain }, { signal });
  await keepAnswer(options, answer);
}

async function crossingsBetween(
  peer: PushOptions['peer'],
  stream: Zones,
  { after, upTo }: { readonly after: number; readonly upTo: number },
  signal: AbortSignal,
): Promise<{ readonly receipts: Receipt[]; readonly quarantined: QuarantinedFact[] }> {
  const receipts: Receipt[] = [];
  const quarantined: QuarantinedFact[] = [];
  for (let at = after; ; ) {
    const found = await peer.listCrossings({ stream, afterOffset: BigInt(at), limit: page }, { signal });
    receipts.push(...found.receipts);
    quarantined.push(...found.quarantined);
    // Where one list was cut, the next page begins there; what comes twice is kept once.
    const ends = [
      ...(found.receipts.length < page ? [] : [found.receipts.at(-1)?.toOffset]),
      ...(found.quarantined.length < page ? [] : [found.quarantined.at(-1)?.offset]),
    ];
    const next = Math.min(upTo, ...ends.map(Number));
    if (next >= upTo || next <= at) return { receipts, quarantined };
    at = next;
  }
}

/** Confirms what is here, and sends receipts and quarantine along. The source has confirmed everything up to `after`. */
export async function confirmAgain(
  { store, stream, peer, sign }: Pick<PullOptions, 'store' | 'stream' | 'peer' | 'sign'>,
  consumer: { readonly stream: Zones; readonly consumerName: string; readonly instanceId: string },
  { after, have }: { readonly after: number; readonly have: Frontier },
  signal: AbortSignal,
): Promise<void> {
  // A process that died may not have written the receipt: a delivery, even of nothing, completes it.
  await store.deliver(stream, { epoch: have.epoch, chainBefore: have.chain, entries: [] }, sign);
  for (let at = after; at < have.offset; ) {
    const receipts = await store.receipts(stream, { after: at, limit: page });
    for (const receipt of receipts) {
      // One of a former epoch is for what was there before a restore.
      if (receipt.epoch !== have.epoch || receipt.toOffset > have.offset) continue;
      const quarantined = (await quarantinedIn(store, stream, receipt)).map(quarantinedMessage);
      const offset = BigInt(receipt.toOffset);
      await peer.confirmReceipt(
        { ...consumer, offset, receipt: receiptMessage(receipt), quarantined },
        { signal },
      );
    }
    at = receipts.at(-1)?.toOffset ?? have.offset;
  }
  await peer.confirmReceipt({ ...consumer, offset: BigInt(have.offset) }, { signal });
}
