import { availableParallelism, cpus, release, totalmem } from 'node:os';

/** The machine in a line: figures mean nothing without it. */
export function describeMachine(): string {
  const model = cpus()[0]?.model ?? 'unknown processor';
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${availableParallelism()} cores (${model}), ${memory} GiB, ${process.platform} ${release()}, Node ${process.version}`;
}
