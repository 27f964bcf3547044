/**
 * Whether the servers flush every write to disk before they answer. A client cannot see it through its own connection (only
 * the monitoring port and the system account show it), so the servers' monitoring ports are asked.
 */
import { messageOf, TallymanError } from '../../../../engine/errors.ts';
import { httpCall } from '../../../../engine/resilience/http.ts';

/** Atomic batches came with 2.12. */
export const oldestVersion = '2.12.0';

export interface SyncCheck {
  /** Names of the servers that say so. */
  readonly names: ReadonlySet<string>;
  readonly ids: ReadonlySet<string>;
  /** Addresses that gave no answer. */
  readonly silent: readonly string[];
}

interface Varz {
  readonly server_id?: string;
  readonly server_name?: string;
  readonly version?: string;
  readonly jetstream?: { readonly config?: { readonly sync_always?: boolean } };
}

const timeoutMs = 2000;

/** Throws BAD_CONFIG if a server says that it does not. One that gives no answer may be down: that is the caller's matter. */
export async function checkSync(urls: readonly string[], signal: AbortSignal): Promise<SyncCheck> {
  const answers = await Promise.all(
    urls.map(async (url) => {
      try {
        const varz = await varzOf(url, signal);
        // A server that starts answers before its JetStream is up, and then says nothing of it.
        if (!varz.jetstream?.config) return { url, why: 'JetStream is not up there' };
        return { url, varz };
      } catch (error) {
        signal.throwIfAborted();
        return { url, why: messageOf(error) };
      }
    }),
  );
  const found = answers.flatMap(({ url, varz }) => (varz ? [{ url, varz }] : []));
  for (const { url, varz } of found) {
    if (varz.jetstream?.config?.sync_always !== true)
      throw new TallymanError(
        'BAD_CONFIG',
        `the NATS server "${varz.server_name}" at ${url} (boundary.jetstream.monitorUrls) does not say sync_always: facts that ` +
          'were acknowledged could be lost with its power. Put "sync_interval: always" into its jetstream block.',
      );
    requireVersion(varz.version ?? '', `at ${url}`);
  }
  return {
    names: new Set(found.map(({ varz }) => varz.server_name ?? '')),
    ids: new Set(found.map(({ varz }) => varz.server_id ?? '')),
    silent: answers.flatMap(({ url, why }) => (why === undefined ? [] : [`${url} (${why})`])),
  };
}

export function requireVersion(version: string, where: string): void {
  if (version.localeCompare(oldestVersion, 'en', { numeric: true }) < 0)
    throw new TallymanError(
      'BAD_CONFIG',
      `the NATS server ${where} has version ${version || '(unknown)'}; ${oldestVersion} or later is needed, for atomic batches`,
    );
}

async function varzOf(url: string, signal: AbortSignal): Promise<Varz> {
  const { status, body } = await httpCall({
    url: new URL('/varz', url),
    method: 'GET',
    timeoutMs,
    signal,
    maxBytes: 4 * 1024 * 1024,
  });
  if (status !== 200) throw new Error(`status ${status}`);
  return JSON.parse(body.toString()) as Varz;
}
