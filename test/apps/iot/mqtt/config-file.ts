import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

/** A configuration file that is gone when the test ends. */
export function configFile(content: unknown): string {
  const folder = mkdtempSync(join(tmpdir(), 'tallyman-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'tallyman.config.json');
  writeFileSync(file, JSON.stringify(content));
  return file;
}
