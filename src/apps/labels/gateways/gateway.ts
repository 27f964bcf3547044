import type { LabelImage } from '../render/image.ts';

/** One image for one page of one label. */
export interface LabelPush {
  /** Twelve hex digits, upper case. */
  readonly mac: string;
  /** From 1. */
  readonly page: number;
  readonly image: LabelImage;
}

export type LabelState = 'shown' | 'processing' | 'timeout' | 'unknown';

/** What a gateway reports about one label. */
export interface LabelReport {
  readonly mac: string;
  readonly state: LabelState;
  /** Hash of what the gateway says it shows, by page; missing if the gateway does not report it. */
  readonly hashes?: ReadonlyMap<number, string>;
  readonly battery?: string;
  readonly seenAt?: Date;
}

/** Talks to labels over the air. It accepts a push first and shows it later: `report` tells when. */
export interface LabelGateway {
  /**
   * Resolves when the gateway has accepted the image. Throws PermanentError if no retry can help, RetryLater if the gateway
   * said when to try again; any other error means: retry.
   */
  push(push: LabelPush, signal: AbortSignal): Promise<void>;
  /** What the gateway reports about these labels, in order; labels that it does not know are 'unknown'. */
  report(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelReport[]>;
  close(): Promise<void>;
}
