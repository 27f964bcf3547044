import { type FileHandle, open, rename, stat } from 'node:fs/promises';
import { isRoot } from './account.ts';
import { type Area, missing } from './area.ts';

/** Beyond this a start begins a new file and keeps one old one. */
const ROTATE_AT_BYTES = 16 * 1024 * 1024;
const TAIL_BYTES = 8_192;
const TAIL_LINES = 15;

export interface ServerLog {
  /** For the child to write to: the file stays ours, and the server's account needs no way to it. */
  readonly file: FileHandle;
  /** The last lines written since this log was opened. */
  tail(): Promise<string>;
}

export async function openServerLog(area: Area): Promise<ServerLog> {
  const before = await stat(area.log).catch(missing<{ size: number }>);
  if (before && before.size > ROTATE_AT_BYTES) await rename(area.log, `${area.log}.1`);
  const file = await open(area.log, 'a', 0o600);
  if (isRoot()) await file.chown(area.keeper.uid, area.keeper.gid);
  const start = (await file.stat()).size;
  return {
    file,
    async tail() {
      const { size } = await stat(area.log);
      const from = Math.max(start, size - TAIL_BYTES);
      const reader = await open(area.log, 'r');
      try {
        const { buffer, bytesRead } = await reader.read(Buffer.alloc(size - from), 0, size - from, from);
        return buffer.toString('utf8', 0, bytesRead).trim().split('\n').slice(-TAIL_LINES).join('\n');
      } finally {
        await reader.close();
      }
    },
  };
}
