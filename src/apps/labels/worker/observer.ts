/** Reports what the workers of a process do, for metrics; see metrics.ts. */
export interface LabelObserver {
  /** An image was offered to a gateway. */
  pushed(outcome: 'accepted' | 'retried' | 'failed'): void;
  /** The gateway had the image already. */
  unchanged(): void;
  /** A label shows what it should, this long after the change. */
  shown(lagSeconds: number): void;
  /** A page shows something else than it should, or its state is no longer known. */
  drifted(): void;
}

export const nobody: LabelObserver = {
  pushed() {},
  unchanged() {},
  shown() {},
  drifted() {},
};
