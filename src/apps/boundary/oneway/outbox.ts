/**
 * One-way mode, the sending side: facts leave as bundles in a folder, and a data diode carries the files over. Nothing comes back: a
 * fact counts as sent when its bundle is durable in the folder. What a diode loses is made up for by sending it again, on a
 * schedule; the receiver skips what it has.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ExportOptions, exportBundle } from '../bundles/export.ts';
import type { BundleManifest } from '../bundles/format.ts';
import { fetchFacts, leaseMs } from '../consume.ts';
import { peerConsumer } from '../handoff/source.ts';

export interface OutboxOptions extends ExportOptions {
  /** Where the diode takes files from. A file that ends in `.part` is not complete. */
  readonly folder: string;
  /** Tells processes of this node apart: one of them at a time carries a stream. */
  readonly instance: string;
  /** Facts in one bundle. Default 50,000. */
  readonly maxFacts?: number;
}

export interface Sent {
  readonly path: string;
  readonly manifest: BundleManifest;
}

const defaultMaxFacts = 50_000;

/** Writes what was not sent yet. Undefined: there is nothing. A process that dies before it is noted sends it again. */
export async function sendNew(options: OutboxOptions): Promise<Sent | undefined> {
  const { store, stream, instance } = options;
  const consumer = peerConsumer(stream.to);
  const opened = await store.openConsumer(stream, consumer, { instance, leaseMs, start: { after: 0 } });
  const sent = await send(options, opened.cursor, Number.MAX_SAFE_INTEGER);
  if (!sent) return undefined;
  const { lastOffset } = sent.manifest;
  if (await store.noteFetched(stream, opened, lastOffset))
    await store.confirm(stream, consumer, instance, lastOffset);
  return sent;
}

/** Writes again what was sent: a range, or everything that was appended since a time. Returns what was written. */
export async function sendAgain(
  options: OutboxOptions,
  what: { readonly from: number; readonly to: number } | { readonly since: Date },
): Promise<Sent[]> {
  const { store, stream } = options;
  const name = peerConsumer(stream.to);
  const cursor = (await store.consumers(stream)).find((each) => each.name === name)?.cursor ?? 0;
  const { first = 1 } = (await store.state(stream)) ?? {};
  const from = 'since' in what ? Math.max(first, await store.offsetAt(stream, what.since)) : what.from;
  const upTo = 'since' in what ? cursor : Math.min(what.to, cursor);
  const written: Sent[] = [];
  for (let after = await knownStart(options, from - 1, first); after < upTo; ) {
    const sent = await send(options, after, upTo);
    if (!sent) return written;
    written.push(sent);
    after = sent.manifest.lastOffset;
  }
  return written;
}

/** The first fact that is kept can only be sent with what comes before it, where that is known: else begin behind it. */
async function knownStart({ store, stream }: OutboxOptions, after: number, first: number): Promise<number> {
  if (after !== first - 1 || after === 0) return after;
  const [exported] = await store.exported(stream, { after: after - 1, limit: 1 });
  return exported?.to === after ? after : after + 1;
}

async function send(options: OutboxOptions, after: number, upTo: number): Promise<Sent | undefined> {
  const { store, stream, folder, maxFacts = defaultMaxFacts, now = Date.now } = options;
  const { last = 0 } = (await store.state(stream)) ?? {};
  const to = Math.min(last, upTo, after + maxFacts);
  if (to <= after) return undefined;
  // The time tells copies apart: a diode may have taken the first one away, or not.
  const name = `${stream.from}.${stream.to}.${padded(after + 1)}-${padded(to)}.${now()}.tar`;
  const path = join(folder, name);
  const manifest = await exportBundle(options, path, { after, upTo: to });
  if (!manifest) return undefined;
  const { firstOffset: from, lastOffset, chain, epoch } = manifest;
  await store.noteExported(stream, { from, to: lastOffset, chain, epoch });
  return { path, manifest };
}

const padded = (offset: number): string => String(offset).padStart(16, '0');

export interface OneWayOptions extends OutboxOptions {
  /** How long facts are gathered for one bundle. Default 1,000. */
  readonly gatherMs?: number;
  /** Default: nothing is sent again by itself. */
  readonly resend?: { readonly everyMs: number; readonly windowMs: number };
}

/** For `HandOff`: waits for facts, gathers them, writes them, and sends again what is due. */
export function oneWay(options: OneWayOptions): (waitMs: number, signal: AbortSignal) => Promise<number> {
  const { store, stream, instance, gatherMs = 1000, resend, now = Date.now } = options;
  let resentAt = now();
  return async (waitMs, signal) => {
    if (resend && now() - resentAt >= resend.everyMs) {
      resentAt = now();
      await sendAgain(options, { since: new Date(now() - resend.windowMs) });
    }
    const wait = resend ? Math.min(waitMs, resend.everyMs) : waitMs;
    const consumer = peerConsumer(stream.to);
    const { entries } = await fetchFacts(store, stream, {
      consumer,
      instance,
      limit: 1,
      waitMs: wait,
      signal,
    });
    if (entries.length === 0 || signal.aborted) return 0;
    await sleep(gatherMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return 0;
    const sent = await sendNew(options);
    return sent ? sent.manifest.lastOffset - sent.manifest.firstOffset + 1 : 0;
  };
}
