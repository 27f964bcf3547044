/** Compiles `src` to `dist` and copies beside it what the compiler does not know: SQL and the CLI's shebang mode. */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, rmSync } from 'node:fs';

rmSync('dist', { recursive: true, force: true });
execFileSync('tsc', ['-p', 'tsconfig.build.json'], { stdio: 'inherit' });
cpSync('src', 'dist', { recursive: true, filter: (path) => !/\.(ts|tsx)$/.test(path) });
chmodSync('dist/cli/main.js', 0o755);
