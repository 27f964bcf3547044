/** Who counts what the workers of a process do; see metrics.ts. */
export interface LabelObserver {
  /** An image was offered to a gateway. */
  pushed(outcome: 'accepted' | 'retried' | 'failed'): void;
  /** The gateway had the image already. */
  unchanged(): void;
  /** A label shows what it should, so long after the change. */
  shown(lagSeconds: number): void;
  /** A page shows something else than it should, or nothing is known of it any more. */
  drifted(): void;
}

export const nobody: LabelObserver = {
  pushed() {},
  unchanged() {},
  shown() {},
  drifted() {},
};
