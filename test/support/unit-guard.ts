import childProcess from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';

/*
 * Keeps the unit layer what it is: a test that starts a process, connects or listens fails, and says where it belongs.
 * That holds for what it does through the code under test, too.
 */

const refuse = (what: string) => (): never => {
  throw new Error(`a unit test ${what}: name its file *.test.ts, for tests with services`);
};

net.Socket.prototype.connect = refuse('opened a connection');
net.Server.prototype.listen = refuse('listened for connections');
// What spawn, fork and exec call; execFileSync and execSync call their own.
Object.assign(childProcess.ChildProcess.prototype, { spawn: refuse('started a process') });
for (const name of ['spawnSync', 'execFileSync', 'execSync'] as const)
  Object.assign(childProcess, { [name]: refuse('started a process') });
syncBuiltinESMExports();
