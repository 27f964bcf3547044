/** Rejects after `ms`, or with the signal's reason when it fires; leaves no timer and no listener behind. */
export async function within<T>(work: Promise<T>, ms: number, signal?: AbortSignal): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  try {
    const limited = Promise.race([work, late]);
    return await (signal === undefined ? limited : orAborted(limited, signal));
  } finally {
    clearTimeout(timer);
  }
}

/** Whether `work` ended within `ms`, with success or not. */
export async function endsWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const ended = (): boolean => true;
  return within(work.then(ended, ended), ms).catch(() => false);
}

/** Rejects with the signal's reason when it fires first. The work goes on: others may wait for it, too. */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** Waits for `ms`, or until the signal fires. Never rejects: the caller checks its signal. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
  });
}

/** A signal that fires when `signal` does, or with `late()` after `ms`. Call `clear` once the work has ended. */
export function deadline(
  ms: number,
  signal: AbortSignal,
  late: () => Error,
): { readonly signal: AbortSignal; readonly clear: () => void } {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(late()), ms);
  return { signal: AbortSignal.any([signal, limit.signal]), clear: () => clearTimeout(timer) };
}
