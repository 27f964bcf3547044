/** What the engine asks of a logger; pino fits as it is. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = (): void => {};

/** The default: a library says nothing unless it is given a voice. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };
