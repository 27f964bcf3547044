#!/usr/bin/env node
import { enableCompileCache } from 'node:module';

// Cache compiled code: half of a short command's time went into compiling.
enableCompileCache();
const { run } = await import('./program.ts');
const { apps } = await import('../host/apps.ts');
const { exitCodes } = await import('../host/cli/exit.ts');
const { complain } = await import('../host/cli/output/print.ts');

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') return;
  complain(`error: standard output cannot be written: ${error.message}`);
  process.exit(exitCodes.failed);
});
process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

process.exitCode = await run(process.argv.slice(2), apps);
