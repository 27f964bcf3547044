import { isConnectionError } from '../../engine/database/database.ts';
import { messageOf, TallymanError } from '../../engine/errors.ts';

export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  database: 4,
  unhealthy: 5,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

export const exitCodeHelp = `
Exit codes:
  0  done
  1  it could not be done, or not all of it
  2  wrong usage or configuration
  3  there is no such job, dead letter, lane, queue or schedule
  4  the database cannot be used: unreachable, login refused, too old,
     not migrated, or privileges are missing
  5  doctor found something that must be fixed`;

const byCode: Readonly<Record<string, ExitCode>> = {
  NOT_FOUND: exitCodes.notFound,
  BAD_OPTION: exitCodes.usage,
  INVALID_OPTION: exitCodes.usage,
  BAD_CONFIG: exitCodes.usage,
  BAD_DATABASE_URL: exitCodes.usage,
  AMBIGUOUS: exitCodes.usage,
  DATABASE_UNREACHABLE: exitCodes.database,
  DATABASE_AUTH: exitCodes.database,
  DATABASE_MISSING: exitCodes.database,
  DATABASE_TOO_NEW: exitCodes.database,
  SERVER_TOO_OLD: exitCodes.database,
  MISSING_PRIVILEGES: exitCodes.database,
  NOT_MIGRATED: exitCodes.database,
  MIGRATION_CHANGED: exitCodes.database,
};

const missingPrivilege = '42501';

/** One message for the user at the terminal, and the exit code for scripts. */
export function explain(error: unknown): { message: string; exitCode: ExitCode } {
  if (error instanceof TallymanError) {
    const exitCode = error.code.startsWith('EMBEDDED_')
      ? exitCodes.database
      : (byCode[error.code] ?? exitCodes.failed);
    return { message: error.message, exitCode };
  }
  if ((error as { code?: string } | null)?.code === missingPrivilege)
    return {
      message: `The database user may not do this: ${messageOf(error)}. Grant it rights on schema "tallyman" and what is in it.`,
      exitCode: exitCodes.database,
    };
  if (isConnectionError(error))
    return {
      message: `The connection to the database was lost: ${messageOf(error)}`,
      exitCode: exitCodes.database,
    };
  return { message: messageOf(error), exitCode: exitCodes.failed };
}

/** Wrong usage that commander cannot detect. */
export const usage = (message: string): TallymanError => new TallymanError('BAD_OPTION', message);
