/** What the workers of this app do, for metrics. */
export interface PassportsObserver {
  documentSettled(outcome: 'validated' | 'rejected'): void;
  versions(step: 'compiled' | 'signed' | 'labelled' | 'active' | 'failed', count: number): void;
  compiled(seconds: number): void;
}

export const nobody: PassportsObserver = {
  documentSettled: () => {},
  versions: () => {},
  compiled: () => {},
};
