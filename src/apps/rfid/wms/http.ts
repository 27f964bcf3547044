/**
 * A warehouse system that speaks JSON over HTTP:
 *
 *     GET {url}?cursor=…&limit=500   →   {"items": [{"oblpn": "…", "shipment": "…"}], "nextCursor": "…" | null}
 */
import { z } from 'zod';
import { messageOf, PermanentError, TallymanError } from '../../../engine/errors.ts';
import { HttpError, httpCall } from '../../../engine/resilience/http.ts';
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
  return {
    plates: async (cursor, signal): Promise<PlatePage> => {
      const url = new URL(options.url);
      url.searchParams.set('limit', String(limit));
      if (cursor !== null) url.searchParams.set('cursor', cursor);
      try {
        // A redirect is not followed: it would carry our credentials to the address that it names.
        const {
          status,
          headers: head,
          body,
        } = await httpCall({
          url,
          method: 'GET',
          headers: { accept: 'application/json', ...headers },
          timeoutMs,
          signal,
          maxBytes,
        });
        if (status < 200 || status >= 300)
          throw new HttpError('status', `it answered ${status}`, { partial: { status, headers: head } });
        const { items, nextCursor } = answer.parse(JSON.parse(body.toString('utf8')));
        return { plates: items, nextCursor: nextCursor ?? null };
      } catch (error) {
        signal.throwIfAborted();
        const Failure = error instanceof HttpError && !error.isRetriable ? PermanentError : TallymanError;
        const message = `the warehouse system at ${url.host} failed: ${reason(error)}`;
        throw new Failure('WMS_FAILED', message, { cause: error });
      }
    },
  };
}

function reason(error: unknown): string {
  if (!(error instanceof z.ZodError)) return messageOf(error);
  const [issue] = error.issues;
  return `its answer is not as agreed: ${issue?.path.join('.')}: ${issue?.message}`;
}
