import { type Logger, pino } from 'pino';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export interface LoggerOptions {
  /** Default `info`. */
  readonly level?: LogLevel;
  /** One readable line instead of JSON. Default: whether stderr is a terminal. */
  readonly readable?: boolean;
  /** Called before each line, for a program that has a half-written line on the terminal. */
  readonly before?: () => void;
}

/** Logs go to stderr: stdout is for the output of the command. */
export function createLogger(options: LoggerOptions = {}): Logger {
  const { level = 'info', readable = process.stderr.isTTY === true, before } = options;
  const settings = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  // Write synchronously: a line about why the process ends must not be lost with the process.
  const stderr = pino.destination({ dest: 2, sync: true });
  // The reader has closed the pipe (`2>&1 | head`); that is no reason to stop working.
  stderr.on('error', () => {});
  if (!readable && !before) return pino(settings, stderr);
  return pino(settings, {
    write: (line: string) => {
      before?.();
      stderr.write(readable ? `${readableLine(line)}\n` : line);
    },
  });
}

const names: Readonly<Record<number, string>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
};

/** `{"level":40,"time":"…T12:03:44.5Z","queue":"dock","msg":"paused"}` as `12:03:44 warn  paused  queue=dock`. */
export function readableLine(json: string): string {
  const { level, time, msg, ...fields } = JSON.parse(json) as Record<string, unknown>;
  const clock = new Date(String(time)).toTimeString().slice(0, 8);
  const rest = Object.entries(fields).map(([name, value]) => `${name}=${readableValue(value)}`);
  return [`${clock} ${(names[Number(level)] ?? 'fatal').padEnd(5)} ${String(msg)}`, ...rest].join('  ');
}

function readableValue(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value);
  return /[\s"\p{Cc}]/u.test(value) || value === '' ? JSON.stringify(value) : value;
}
