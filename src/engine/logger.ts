/** The logger that the engine needs; pino fits as it is. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = (): void => {};

/** Logs nothing. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** The default: warnings and errors, a line each, on standard error, so that failures are visible without any set-up. */
export const consoleLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: (fields, message) => console.warn(`tallyman: ${message} ${JSON.stringify(fields)}`),
  error: (fields, message) => console.error(`tallyman: ${message} ${JSON.stringify(fields)}`),
};
