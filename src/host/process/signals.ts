const numbers = { SIGINT: 2, SIGTERM: 15 } as const;
type Signal = keyof typeof numbers;

/** The exit code that a shell shows for a process ended by a signal. */
const exitCodeOf = (signal: Signal): number => 128 + numbers[signal];

/**
 * Under npm, Ctrl-C arrives twice, from the terminal and from npm, a moment apart. Only a signal later than this means
 * "stop now".
 */
const echoMs = 700;

/** The first SIGINT or SIGTERM asks to stop; the second ends the process at once. */
export function onStopSignal(stop: (signal: Signal) => void): void {
  let firstAt: number | undefined;
  const heard = (signal: Signal): void => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      stop(signal);
    } else if (performance.now() - firstAt > echoMs) process.exit(exitCodeOf(signal));
  };
  for (const signal of Object.keys(numbers) as Signal[]) process.on(signal, heard);
}
