/**
 * Baskets that stand at dock doors, leave, and come to other doors. A basket at a door is read again and again until it
 * leaves. Where it goes then is random, but the same for the same seed.
 */
import type { Random } from './random.ts';
import { basketTag } from './tags.ts';

/** A door has read a tag. */
export interface Sighting {
  readonly door: number;
  readonly epc: string;
  /** Microseconds since the beginning; each is later than the one before. */
  readonly at: number;
  readonly antenna: number;
  readonly rssi: number;
}

export interface PlantOptions {
  readonly random: Random;
  readonly doors: number;
  readonly baskets: number;
  /** The serial of the first basket. */
  readonly firstBasket: number;
  /** Reads a second, of all doors together. */
  readonly rate: number;
}

interface Visit {
  readonly basket: number;
  readonly door: number;
  left: number;
}

/** Baskets that one door reads at the same time. */
const crowd = 3;
const fewestReads = 3;
const mostReads = 14;
/** How often a basket that left comes back to the same door: it is read again, and has not moved. */
const returns = 0.1;

/** What the doors read, one read after another, without end. */
export function* sightings(options: PlantOptions): Generator<Sighting, never> {
  const { random, doors, baskets, firstBasket, rate } = options;
  const standing = Math.max(1, Math.min(doors * crowd, Math.floor(baskets / 2)));
  /** The last door of each basket. */
  const lastDoor = new Map<number, number>();
  /** Baskets away from any door, in the order in which they left: the first to leave is the first to come back. */
  const away = shuffled(random, baskets);

  const arrive = (): Visit => {
    // Not always the first one: baskets that leave together arrive in another order.
    const [basket = 0] = away.splice(random.below(Math.min(away.length, 1 + Math.floor(baskets / 10))), 1);
    const before = lastDoor.get(basket);
    const stays = before === undefined ? random.below(doors) : before;
    const door =
      before === undefined || doors === 1 || random.chance(returns)
        ? stays
        : (before + 1 + random.below(doors - 1)) % doors;
    lastDoor.set(basket, door);
    return { basket, door, left: fewestReads + random.below(mostReads - fewestReads + 1) };
  };

  const visits = Array.from({ length: standing }, arrive);
  const step = 1_000_000 / rate;
  for (let n = 1; ; n += 1) {
    const place = random.below(visits.length);
    const visit = visits[place] as Visit;
    visit.left -= 1;
    yield {
      door: visit.door,
      epc: basketTag(firstBasket + visit.basket),
      // A random time within its share, so that readings are neither equal nor evenly spaced.
      at: Math.floor((n + 0.9 * random.next()) * step),
      antenna: 1 + random.below(4),
      rssi: -72 + random.below(40),
    };
    if (visit.left > 0) continue;
    away.push(visit.basket);
    visits[place] = arrive();
  }
}

function shuffled(random: Random, count: number): number[] {
  const numbers = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i -= 1) {
    const other = random.below(i + 1);
    [numbers[i], numbers[other]] = [numbers[other] as number, numbers[i] as number];
  }
  return numbers;
}
