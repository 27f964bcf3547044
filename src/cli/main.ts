#!/usr/bin/env node
import { enableCompileCache } from 'node:module';

// Cache compiled code: half of a short command's time went into compiling.
enableCompileCache();
const { run } = await import('./program.ts');
const { apps } = await import('../host/apps.ts');

for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

process.exitCode = await run(process.argv.slice(2), apps);
