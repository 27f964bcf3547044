import type { TenantQueries } from '../../host/timeline.ts';
import type { Snapshot } from './compile/types.ts';
import { passportError } from './errors.ts';
import { factsOfSnapshot } from './store/facts.ts';
import { requireSnapshot } from './store/snapshots.ts';

const most = 20;

/** Sealed snapshots, which never change: the items of a model share one. */
export class SnapshotCache {
  readonly #known = new Map<string, Snapshot>();

  async get(on: TenantQueries, id: string): Promise<Snapshot> {
    const name = `${on.tenantId}/${id}`;
    const known = this.#known.get(name);
    if (known) return known;
    const snapshot = await loadSnapshot(on, id);
    const [oldest] = this.#known.keys();
    if (this.#known.size >= most && oldest !== undefined) this.#known.delete(oldest);
    this.#known.set(name, snapshot);
    return snapshot;
  }
}

/** As it is stored now. The compiler compares the facts with the hash. */
export async function loadSnapshot(on: TenantQueries, id: string): Promise<Snapshot> {
  const { state, hash } = await requireSnapshot(on, id);
  if (state !== 'SEALED' || hash === null)
    throw passportError('SNAPSHOT_NOT_READY', `snapshot ${id} is ${state}: only a sealed one is compiled`);
  return { hash, facts: await factsOfSnapshot(on, id) };
}
