import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { usage } from '../../../host/cli/exit.ts';

/** Under another name first: a reader finds the whole file or none. */
export async function writeWhole(file: string, content: string | Uint8Array): Promise<void> {
  const partial = `${file}.partial`;
  try {
    await writeFile(partial, content);
    await rename(partial, file);
  } catch (error) {
    await rm(partial, { force: true });
    throw usage(`${file} cannot be written: ${(error as Error).message}`);
  }
}

export const readText = (file: string): Promise<string> =>
  readFile(file, 'utf8').catch(() => {
    throw usage(`the file ${file} cannot be read`);
  });
