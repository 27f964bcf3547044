import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Config } from '../../config/keys.ts';
import { TallymanError } from '../../engine/errors.ts';
import { SecretBox } from '../../secrets/box.ts';

/**
 * The configured master secret; else one that is generated once and stored in a file that only its owner can read. A fleet
 * on one database needs the same secret on every machine, so with a DATABASE_URL it must be configured.
 */
export async function loadSecretBox(config: Config): Promise<SecretBox> {
  const given = config['secrets.key'];
  const others = (config['secrets.otherKeys'] ?? '').split(',').filter((text) => text.trim() !== '');
  if (given !== null) return new SecretBox(decode(given), others.map(decode));
  if (config['database.url'] !== null)
    throw new TallymanError(
      'BAD_CONFIG',
      'secrets.key (TALLYMAN_SECRET_KEY) is not set. API keys and webhook secrets are kept under it, and every process on ' +
        'this database needs the same one. Make one with: openssl rand -base64 32',
    );
  return new SecretBox(decode(await readOrMake(config['secrets.file'])), others.map(decode));
}

function decode(text: string): Buffer {
  const bytes = Buffer.from(text.trim(), 'base64');
  if (bytes.length < 32)
    throw new TallymanError(
      'BAD_CONFIG',
      'secrets.key must be base64 of at least 32 bytes (openssl rand -base64 32)',
    );
  return bytes;
}

async function readOrMake(path: string): Promise<string> {
  await mkdir(dirname(path), { recursive: true });
  // Write under another name and link: of several processes that start at once one wins, and none reads half a secret.
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${randomBytes(32).toString('base64')}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await unlink(draft);
  }
  return readFile(path, 'utf8');
}
