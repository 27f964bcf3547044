/** What the engine asks of a logger; pino fits as it is. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = (): void => {};

/** For those who want to hear nothing. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** The default: warnings and errors, a line each, on standard error. What goes wrong must not go unheard. */
export const consoleLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: (fields, message) => console.warn(`tallyman: ${message} ${JSON.stringify(fields)}`),
  error: (fields, message) => console.error(`tallyman: ${message} ${JSON.stringify(fields)}`),
};
