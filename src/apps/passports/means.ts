import { hash } from 'node:crypto';
import { version } from '../../engine/version.ts';
import { compileLimits } from './compile/compile.ts';
import { documentLimits } from './compile/documents/parse.ts';
import { setSha256 } from './compile/hash.ts';
import type { CompileLimits, DocumentLimits } from './compile/types.ts';
import type { PassportsConfig } from './config.ts';
import { nobody, type PassportsObserver } from './observer.ts';
import { RuleCache } from './rules/cache.ts';
import { type KeyRing, keyRing } from './signing/keys.ts';
import { SnapshotCache } from './snapshot-cache.ts';
import { type Fresh, randomFresh } from './work.ts';

/** What the handlers work with. */
export interface Means {
  readonly keys: KeyRing;
  /** Bound into receipts: what another build compiled is not compiled here. */
  readonly build: string;
  /** Where passports are served: https://host, without a slash at the end. */
  readonly origin: string;
  readonly limits: CompileLimits;
  readonly documentLimits: DocumentLimits;
  readonly fresh: Fresh;
  readonly rules: RuleCache;
  readonly snapshots: SnapshotCache;
  readonly observer: PassportsObserver;
}

/** The build of this program, unless the configuration names one. */
export const buildId = (config: Pick<PassportsConfig, 'passports.build'>): string =>
  config['passports.build'] ?? `tallyman-${version()}`;

export function meansOf(
  config: PassportsConfig,
  {
    keys = keyRing(config),
    observer = nobody,
    fresh = randomFresh,
  }: { readonly keys?: KeyRing; readonly observer?: PassportsObserver; readonly fresh?: Fresh } = {},
): Means {
  return meansWith({
    keys,
    build: buildId(config),
    origin: `https://${config['passports.host']}`,
    limits: {
      payloadBytes: config['passports.maxPayloadBytes'],
      proofBytes: config['passports.maxProofBytes'],
      receiptBytes: config['passports.maxReceiptBytes'],
    },
    documentLimits: { ...documentLimits, maxBytes: config['passports.maxDocumentBytes'] },
    observer,
    fresh,
  });
}

/** With defaults for all but the keys. */
export function meansWith(given: Partial<Means> & Pick<Means, 'keys'>): Means {
  setSha256((bytes) => hash('sha256', bytes, 'buffer'));
  return {
    build: buildId({ 'passports.build': null }),
    origin: 'https://localhost',
    limits: compileLimits,
    documentLimits,
    fresh: randomFresh,
    rules: new RuleCache(),
    snapshots: new SnapshotCache(),
    observer: nobody,
    ...given,
  };
}
