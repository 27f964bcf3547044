import { relative } from 'node:path';
import { isOutOfStep } from '../../engine/database/migration-errors.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { ReachedDatabase } from './database.ts';

/** Adds a fix that only the embedded database has: its data belongs to this folder, and can be deleted. */
export function withResetAdvice(error: unknown, { embedded }: Pick<ReachedDatabase, 'embedded'>): unknown {
  if (!embedded || !isOutOfStep(error)) return error;
  const shown = relative(process.cwd(), embedded.dataDir) || embedded.dataDir;
  return new TallymanError(
    error.code,
    `${error.message} This is the embedded development database in ${shown}: to delete it and start with an empty ` +
      'one, stop the programs that use it and run: tallyman reset',
    { cause: error.cause, ...(error.details && { details: error.details }) },
  );
}
