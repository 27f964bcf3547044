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

/** What a gateway says of one label. */
export interface LabelReport {
  readonly mac: string;
  readonly state: LabelState;
  /** Hash of what the gateway says it shows, by page; missing where the gateway cannot tell. */
  readonly hashes?: ReadonlyMap<number, string>;
  readonly battery?: string;
  readonly seenAt?: Date;
}

/** What speaks with labels over the air. Pushes are accepted first and shown later: `report` tells when. */
export interface LabelGateway {
  /**
   * Resolves when the gateway has accepted the image. Throws PermanentError for what no retry can mend, RetryLater where
   * the gateway said when to come again; any other error means: try again.
   */
  push(push: LabelPush, signal: AbortSignal): Promise<void>;
  /** What the gateway says of these labels, in their order; labels that it does not know come back as 'unknown'. */
  report(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelReport[]>;
  close(): Promise<void>;
}
