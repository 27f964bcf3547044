import { createReadStream, createWriteStream } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import { messageOf } from '../../../engine/errors.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, group, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { nodeFrom } from './frame.ts';

interface PutOptions extends JsonOption {
  readonly digest?: string;
  readonly mediaType?: string;
}

export function addObjects(program: Command, frame: CommandFrame): void {
  const objects = group(program, 'objects', 'bytes that facts name: stored once, never changed');
  const withNode = nodeFrom(frame);

  withJson(objects.command('put'))
    .description('store an object; the same bytes again give the same answer, other bytes are refused')
    .argument('<bucket>', 'lower-case letters, digits, "." and "-"')
    .argument('<key>', 'its name in the bucket')
    .argument('<file>', 'what to store, - for standard input')
    .option('--digest <digest>', 'refuse other bytes: sha256: and 64 hex digits')
    .option('--media-type <type>', 'such as application/pdf')
    .addHelpText(
      'after',
      examples(['objects put batch-files order-1.pdf ./order-1.pdf --media-type application/pdf']),
    )
    .action((bucket: string, key: string, file: string, options: PutOptions) =>
      withNode(async ({ settings, objects: all }) => {
        if (file !== '-') await requireFile(file);
        const source = file === '-' ? process.stdin : createReadStream(file);
        const put = await all.put({ tenantId: settings.tenantId, bucket, key }, source, {
          digest: options.digest,
          mediaType: options.mediaType,
        });
        show(options.json, { digest: put.digest, size: put.size }, () => `${put.digest}  ${put.size} bytes`);
      }),
    );

  withJson(objects.command('get'))
    .description('write an object to a file, checked against its digest')
    .argument('<bucket>')
    .argument('<key>')
    .argument('<file>', 'where to, - for standard output')
    .addHelpText('after', examples(['objects get batch-files order-1.pdf ./order-1.pdf']))
    .action((bucket: string, key: string, file: string, options: JsonOption) =>
      withNode(async ({ settings, objects: all }) => {
        const { info, bytes } = await all.get({ tenantId: settings.tenantId, bucket, key });
        if (file === '-') {
          // Stdout is not ours to close.
          for await (const chunk of bytes) if (!process.stdout.write(chunk)) await drained();
          return;
        }
        await toFile(bytes, file);
        show(
          options.json,
          { digest: info.digest, size: info.size, media_type: info.mediaType ?? null },
          () => `${info.digest}  ${info.size} bytes in ${file}`,
        );
      }),
    );
}

async function requireFile(path: string): Promise<void> {
  try {
    if ((await stat(path)).isFile()) return;
  } catch (error) {
    throw usage(`cannot read ${path}: ${messageOf(error)}`);
  }
  throw usage(`${path} is not a file`);
}

/** Under another name first: a download that breaks off leaves no file that looks complete. */
async function toFile(bytes: AsyncIterable<Uint8Array>, file: string): Promise<void> {
  const partial = `${file}.part`;
  try {
    await pipeline(bytes, createWriteStream(partial));
    await rename(partial, file);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

const drained = (): Promise<void> => new Promise((resolve) => process.stdout.once('drain', () => resolve()));
