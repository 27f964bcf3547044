import type { Logger } from '../../../src/engine/logger.ts';

export interface LogLine {
  readonly level: keyof Logger;
  readonly fields: object;
  readonly message: string;
}

/** A logger that keeps what it is told. */
export class RecordedLogs implements Logger {
  readonly lines: LogLine[] = [];

  debug = (fields: object, message: string): void => this.#keep('debug', fields, message);
  info = (fields: object, message: string): void => this.#keep('info', fields, message);
  warn = (fields: object, message: string): void => this.#keep('warn', fields, message);
  error = (fields: object, message: string): void => this.#keep('error', fields, message);

  at(level: keyof Logger): LogLine[] {
    return this.lines.filter((line) => line.level === level);
  }

  #keep(level: keyof Logger, fields: object, message: string): void {
    this.lines.push({ level, fields, message });
  }
}
