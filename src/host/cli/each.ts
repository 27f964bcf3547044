import { type ExitCode, explain } from './exit.ts';
import { complain, print, printJson } from './output/print.ts';

/**
 * Runs an operation for each id. One failure does not stop the others; the exit code is that of the first failure.
 * `done` is the word for success: "retried".
 */
export async function forEachId(
  ids: readonly string[],
  options: { readonly json?: boolean; readonly done: string; readonly say: (id: string) => string },
  work: (id: string) => Promise<void>,
): Promise<void> {
  const done: string[] = [];
  const failed: { id: string; message: string }[] = [];
  let exitCode: ExitCode | undefined;
  for (const id of new Set(ids)) {
    try {
      await work(id);
      done.push(id);
      if (!options.json) print(options.say(id));
    } catch (error) {
      const explained = explain(error);
      // Without a database the others would fail the same way.
      if (explained.exitCode === 4) throw error;
      exitCode ??= explained.exitCode;
      failed.push({ id, message: explained.message });
      complain(`error: ${explained.message}`);
    }
  }
  if (options.json) printJson({ [options.done]: done, failed });
  if (exitCode !== undefined) process.exitCode = exitCode;
}
