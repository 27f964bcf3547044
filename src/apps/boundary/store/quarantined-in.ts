import type { SignedReceipt } from '../domain/receipt.ts';
import type { FactStore, QuarantinedEntry, StreamId } from './store.ts';

const page = 500;

/** What went into quarantine of the facts that a receipt covers. */
export async function quarantinedIn(
  store: Pick<FactStore, 'quarantined'>,
  stream: StreamId,
  { epoch, fromOffset, toOffset }: Pick<SignedReceipt, 'epoch' | 'fromOffset' | 'toOffset'>,
): Promise<QuarantinedEntry[]> {
  const found: QuarantinedEntry[] = [];
  for (let after = fromOffset - 1; ; ) {
    const entries = await store.quarantined(stream, { after, limit: page });
    found.push(...entries.filter((each) => each.epoch === epoch && each.offset <= toOffset));
    after = entries.at(-1)?.offset ?? toOffset;
    if (entries.length < page || after >= toOffset) return found;
  }
}
