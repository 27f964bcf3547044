import { defineConfig } from 'vitest/config';

/*
 * Layers; the name of a file decides. They run in the order of their names: the longest tests start first, so that none of
 * them is left to run alone at the end.
 *
 *   chaos     kills, pauses and cuts off what works
 *   services  needs PostgreSQL, a broker or another process
 *   unit      needs nothing but Node: `npm run test:unit`
 */
const unit = 'test/**/*.unit.test.ts';
const chaos = [
  'test/chaos/**/*.test.ts',
  'test/engine/liveness/**/*.test.ts',
  'test/**/killed.test.ts',
  'test/**/*-crash.test.ts',
];
const withPostgres = { globalSetup: ['test/support/global-setup.ts'] };

export default defineConfig({
  test: {
    expect: { poll: { timeout: 30_000 } },
    // For what hangs, not for what is slow: on a busy machine a test may get a hundredth of a core.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: 'forks',
    // Node loads the sources as it does in production.
    server: { deps: { external: [/\/src\/.*\.ts$/] } },
    // More than cores: most tests wait for a process, a lease or a poll.
    maxWorkers: 3,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: [unit],
          setupFiles: ['test/support/unit-guard.ts'],
        },
      },
      {
        extends: true,
        test: {
          name: 'services',
          include: ['test/**/*.test.ts'],
          exclude: [unit, ...chaos],
          ...withPostgres,
        },
      },
      { extends: true, test: { name: 'chaos', include: chaos, exclude: [unit], ...withPostgres } },
    ],
  },
});
