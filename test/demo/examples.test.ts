import { readdirSync, readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { inRoot, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';

const expected: Readonly<Record<string, RegExp>> = {
  'quickstart.ts':
    /^printed 2 × PALLET-WRAP in attempt 2\njob is SUCCEEDED\npayload of kind "quickstart.print-label" is refused at copies: .*\n$/,
  'lanes.ts': /^north: 1 2 3 4 5\nsouth: 1 2 3 4 5\n$/,
  'exactly-once.ts': /^ran 2 times, 100 pieces in stock\n$/,
  'outbox-in-your-transaction.ts': /^told the customer about order A-2\n0 jobs left\n$/,
};

test.each(readdirSync(inRoot('examples')).filter((name) => name.endsWith('.ts')))(
  'examples/%s runs, says what it promises and ends by itself',
  async (name) => {
    const { url, drop } = await emptyDatabase();
    onTestFinished(drop);
    const { code, stdout, stderr } = await start(`examples/${name}`, [], { env: { DATABASE_URL: url } })
      .ended;
    // Attempts that fail on purpose are logged, nothing else is.
    expect(
      stderr.split('\n').filter((line) => line !== '' && !/^tallyman: a job (failed|used)/.test(line)),
    ).toEqual([]);
    expect(stdout).toMatch(expected[name] ?? /never/);
    expect(code).toBe(0);
    expect(readFileSync(inRoot(`examples/${name}`), 'utf8').split('\n').length).toBeLessThanOrEqual(41);
  },
);
