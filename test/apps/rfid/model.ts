/** What the rules say, read by read, with no thought of speed: what `decide` is compared with. */
import type { ExaminedRead } from '../../../src/apps/rfid/tag-read.ts';

const fiveMinutes = 300_000_000;

interface ModelBasket {
  location: string | undefined;
  lastSeen: number;
  moves: { from: string | undefined; to: string; at: number }[];
}

export class Model {
  readonly baskets = new Map<string, ModelBasket>();
  readonly #hashes = new Set<string>();
  readonly #ids = new Set<string>();

  /** One read; answers what became of it. */
  process(read: ExaminedRead): string {
    const hash = `${read.tenantId}/${read.contentHash}`;
    const id = `${read.tenantId}/${read.zbTagReadId}`;
    if (this.#hashes.has(hash)) return 'duplicate';
    if (read.zbTagReadId !== null && this.#ids.has(id)) return 'duplicate';
    this.#hashes.add(hash);
    if (read.zbTagReadId !== null) this.#ids.add(id);

    const key = `${read.tenantId}/${read.epcHex}`;
    const basket = this.baskets.get(key);
    if (!basket) {
      const moves = [{ from: undefined, to: read.locationId, at: read.at }];
      this.baskets.set(key, { location: read.locationId, lastSeen: read.at, moves });
      return 'new';
    }
    if (read.at < basket.lastSeen) return 'stale';
    if (read.locationId !== basket.location && read.at === basket.lastSeen) return 'stale';
    basket.lastSeen = read.at;
    if (read.locationId === basket.location) return 'same location';
    const from = basket.location;
    basket.location = read.locationId;
    const last = basket.moves.at(-1);
    if (last && last.from === from && last.to === read.locationId && read.at - last.at < fiveMinutes)
      return 'same movement';
    basket.moves.push({ from, to: read.locationId, at: read.at });
    return 'moved';
  }
}
