/** How full a stream is, and whether it takes more. */

export interface Limits {
  /** What one stream may hold. */
  readonly maxBytes: number;
  /** Free space that streams must leave on the disk. */
  readonly reserveBytes: number;
  /** A stream that is this full takes no more, until it is down to `acceptAt`. Shares of 1. */
  readonly refuseAt: number;
  readonly acceptAt: number;
}

export const defaultLimits: Limits = {
  maxBytes: 10 * 1024 ** 3,
  reserveBytes: 1024 ** 3,
  refuseAt: 0.8,
  acceptAt: 0.7,
};

/** What the stream could hold: its limit, or what it has and the disk could still take. */
export const capacityOf = (bytes: number, freeBytes: number | undefined, limits: Limits): number =>
  freeBytes === undefined
    ? limits.maxBytes
    : Math.min(limits.maxBytes, bytes + Math.max(0, freeBytes - limits.reserveBytes));

/** The most bytes with which the stream is no fuller than this. */
export const bytesAt = (fill: number, freeBytes: number | undefined, limits: Limits): number => {
  const ofLimit = fill * limits.maxBytes;
  if (freeBytes === undefined || fill >= 1) return Math.floor(ofLimit);
  const left = Math.max(0, freeBytes - limits.reserveBytes);
  return Math.floor(Math.min(ofLimit, (left * fill) / (1 - fill)));
};

export const fillOf = (bytes: number, capacity: number): number => (capacity <= 0 ? 1 : bytes / capacity);

/** Between the two limits a stream stays what it is, so that it does not flap. */
export const isFull = (fill: number, wasFull: boolean, { refuseAt, acceptAt }: Limits): boolean =>
  wasFull ? fill > acceptAt : fill >= refuseAt;
