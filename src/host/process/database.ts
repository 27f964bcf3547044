import { relative } from 'node:path';
import type { Config } from '../../config/keys.ts';
import { describe } from '../../engine/database/database.ts';
import type { TallymanError } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';
import type { EmbeddedWish } from './embedded.ts';

/** A database to connect to, with a description of where it is. */
export interface ReachedDatabase {
  readonly url: string;
  /** Without any password. */
  readonly where: string;
  readonly embedded:
    | { readonly dataDir: string; readonly port: number; readonly started: boolean }
    | undefined;
  /** Resolves when an embedded server is gone for good: the process cannot continue. */
  readonly lost: Promise<TallymanError>;
  close(): Promise<void>;
}

/** The configured database, else the embedded one. The caller closes its connections before this. */
export async function reachDatabase(
  config: Config,
  options: { readonly logger: Logger; readonly embedded?: EmbeddedWish },
): Promise<ReachedDatabase> {
  const url = config['database.url'];
  if (url !== null)
    return {
      url,
      where: `PostgreSQL at ${describe(url)}`,
      embedded: undefined,
      lost: new Promise(() => {}),
      close: async () => {},
    };
  const { useEmbedded } = await import('./embedded.ts');
  const dataDir = config['database.dataDir'];
  const use = await useEmbedded(dataDir, options.embedded ?? 'join', options.logger);
  const shown = relative(process.cwd(), dataDir) || dataDir;
  return {
    url: use.url,
    where: `embedded PostgreSQL on 127.0.0.1:${use.port}, data in ${shown}${use.started ? '' : ' (run by another process)'}`,
    embedded: { dataDir, port: use.port, started: use.started },
    lost: use.lost,
    close: use.close,
  };
}
