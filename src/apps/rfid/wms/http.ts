/**
 * A warehouse system that speaks JSON over HTTP:
 *
 *     GET {url}?cursor=…&limit=500   →   {"items": [{"oblpn": "…", "shipment": "…"}], "nextCursor": "…" | null}
 */
import { z } from 'zod';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import type { PlatePage, WarehouseSystem } from './warehouse-system.ts';

export interface HttpWarehouseOptions {
  readonly url: string;
  /** Such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Plates asked for at a time. Default 500. */
  readonly limit?: number;
  /** Default 30,000. */
  readonly timeoutMs?: number;
  /** A longer answer is refused. Default 8 MiB. */
  readonly maxBytes?: number;
  readonly fetch?: typeof fetch;
}

const text = z.string().trim().min(1).max(200);
const answer = z.object({
  items: z.array(z.object({ oblpn: text, shipment: text })),
  nextCursor: z.string().min(1).max(2000).nullish(),
});

export function httpWarehouse(options: HttpWarehouseOptions): WarehouseSystem {
  const { headers = {}, limit = 500, timeoutMs = 30_000, maxBytes = 8 * 1024 * 1024 } = options;
  if (!URL.canParse(options.url) || !/^https?:$/.test(new URL(options.url).protocol))
    throw new TallymanError('BAD_OPTION', `url of the warehouse system must be http or https`);
  const ask = options.fetch ?? fetch;
  return {
    plates: async (cursor, signal): Promise<PlatePage> => {
      const url = new URL(options.url);
      url.searchParams.set('limit', String(limit));
      if (cursor !== null) url.searchParams.set('cursor', cursor);
      try {
        const response = await ask(url, {
          headers: { accept: 'application/json', ...headers },
          // A redirect would carry our credentials to whoever it names.
          redirect: 'error',
          signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
        });
        if (!response.ok) {
          await response.body?.cancel();
          throw new Error(`it answered ${response.status}`);
        }
        const { items, nextCursor } = answer.parse(JSON.parse(await bounded(response, maxBytes)));
        return { plates: items, nextCursor: nextCursor ?? null };
      } catch (error) {
        signal.throwIfAborted();
        throw new TallymanError(
          'WMS_FAILED',
          `the warehouse system at ${url.host} failed: ${reason(error)}`,
          {
            cause: error,
          },
        );
      }
    },
  };
}

async function bounded(response: Response, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new Error(`its answer is longer than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function reason(error: unknown): string {
  if (!(error instanceof z.ZodError)) return messageOf(error);
  const [issue] = error.issues;
  return `its answer is not as agreed: ${issue?.path.join('.')}: ${issue?.message}`;
}
