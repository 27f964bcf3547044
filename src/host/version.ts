import { readFileSync } from 'node:fs';

/** Two folders up, from src/cli as from dist/cli. */
export function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
