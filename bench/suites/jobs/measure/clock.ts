/** The monotonic clock in milliseconds; unlike `performance.now()` it is the same in all processes. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6;
