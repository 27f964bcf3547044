import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const page = readFileSync(join(root, 'docs/promises.md'), 'utf8');
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('|') && line.includes('`'))
  .map((line) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim()),
  );
const files = (cell: string) => [...cell.matchAll(/`([^` ]+\.[a-z]+)`/g)].map(([, path]) => path ?? '');
/** The engine's are written from its own folder, all others from src. */
const source = (path: string) =>
  [join(root, 'src/engine', path), join(root, 'src', path)].find(existsSync) ?? path;

describe('docs/promises.md', () => {
  for (const [id = '', , keptBy, provenBy] of rows.filter((cells) => /^[A-Z]+-\d+$/.test(cells[0] ?? '')))
    test(`${id} is kept and proven where the page says`, () => {
      expect(files(keptBy ?? '').length).toBeGreaterThan(0);
      expect(files(keptBy ?? '').filter((path) => !existsSync(source(path)))).toEqual([]);
      const tests = files(provenBy ?? '');
      expect(tests.length).toBeGreaterThan(0);
      for (const path of tests)
        expect(readFileSync(join(root, 'test', path), 'utf8')).toMatch(new RegExp(`\\b${id}\\b`));
    });

  test('each promise stands there once', () => {
    const promises = rows
      .filter((cells) => /^[A-Z]+-\d+$/.test(cells[0] ?? ''))
      .map(([, promise]) => promise);
    expect(promises.filter((promise, i) => promises.indexOf(promise) !== i)).toEqual([]);
  });

  test('the races name tests that exist', () => {
    const races = rows.filter((cells) => cells.length === 2);
    expect(races.length).toBe(8);
    for (const [, provenBy] of races)
      expect(files(provenBy ?? '').filter((path) => !existsSync(join(root, 'test', path)))).toEqual([]);
  });
});
