import { defineConfig } from 'vitest/config';

/** Layers: `npm run test:unit` runs the first (nothing but Node), `npm test` both. The name of a file decides. */
const unit = 'test/**/*.unit.test.ts';

export default defineConfig({
  test: {
    expect: { poll: { timeout: 30_000 } },
    pool: 'forks',
    maxWorkers: 2,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: [unit],
          setupFiles: ['test/support/unit-guard.ts'],
          testTimeout: 20_000,
          hookTimeout: 20_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'services',
          include: ['test/**/*.test.ts'],
          exclude: [unit],
          globalSetup: ['test/support/global-setup.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
