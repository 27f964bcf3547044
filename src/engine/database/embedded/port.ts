import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { TallymanError } from '../../errors.ts';
import { type Area, writeWhole } from './area.ts';

export const HOST = '127.0.0.1';

/** Listens for a moment: the port if it was free, else undefined. 0 asks for any. */
function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(undefined));
    probe.listen(port, HOST, () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address ? address.port : undefined));
    });
  });
}

/** The requested port and no other; without a request the last one, so that a noted URL stays valid; otherwise any. */
export async function choosePort(area: Area, asked: number | undefined): Promise<number> {
  if (asked !== undefined) {
    if ((await tryPort(asked)) === undefined) throw portTaken(asked);
    return asked;
  }
  const last = Number(await readFile(join(area.folder, 'port'), 'utf8').catch(() => ''));
  const port = (last > 0 && last < 65_536 ? await tryPort(last) : undefined) ?? (await tryPort(0));
  if (port === undefined) throw new TallymanError('EMBEDDED_NO_PORT', `No free port on ${HOST}.`);
  return port;
}

export const rememberPort = (area: Area, port: number): Promise<void> =>
  writeWhole(area, join(area.folder, 'port'), `${port}\n`, 0o644);

export const portTaken = (port: number): TallymanError =>
  new TallymanError(
    'EMBEDDED_PORT_IN_USE',
    `Port ${port} on ${HOST}, meant for the embedded PostgreSQL, is used by another program or not allowed to this user. ` +
      'Name another port, or none and a free one is found.',
    { details: { port } },
  );
