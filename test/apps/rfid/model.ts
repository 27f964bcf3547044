/**
 * What the rules of docs/decisions/0020 make of a set of reads: one pass over the sorted reads of each basket, with no thought of
 * speed. It shares no code with the product that it judges.
 */

export interface ModelRead {
  /** Names the basket, tenant included. */
  readonly basket: string;
  readonly place: string;
  readonly device: string;
  /** In microseconds. */
  readonly at: number;
  /** Orders reads of one instant, and makes two reads the same read. */
  readonly hash: string;
}

export interface ModelRules {
  readonly window: number;
  readonly minimumStay: number;
}

export interface ModelMovement {
  readonly from: string | null;
  readonly to: string;
  readonly at: number;
  readonly device: string;
  repeats: number;
  lastAt: number | null;
}

export interface ModelBasket {
  readonly place: string;
  readonly device: string;
  readonly firstSeen: number;
  readonly lastSeen: number;
  readonly movements: readonly ModelMovement[];
  /** What became of each read, by its hash: null for one that moved the basket. */
  readonly verdicts: Readonly<Record<string, string | null>>;
}

export const fiveMinutes: ModelRules = { window: 300_000_000, minimumStay: 0 };

export function model(reads: readonly ModelRead[], rules = fiveMinutes): Map<string, ModelBasket> {
  const different = [...new Map(reads.map((read) => [`${read.basket}/${read.hash}`, read])).values()];
  return new Map(
    [...Map.groupBy(different, ({ basket }) => basket)].map(([basket, own]) => [
      basket,
      oneBasket(
        own.toSorted((a, b) => (a.at === b.at ? (a.hash < b.hash ? -1 : 1) : a.at - b.at)),
        rules,
      ),
    ]),
  );
}

function oneBasket(reads: readonly ModelRead[], { window, minimumStay }: ModelRules): ModelBasket {
  const movements: ModelMovement[] = [];
  const verdicts: Record<string, string | null> = {};
  let counted: string | null = null;
  let stayCounts = false;
  reads.forEach((read, i) => {
    const isArrival = reads[i - 1]?.place !== read.place;
    if (!isArrival) {
      verdicts[read.hash] = counted === read.place ? 'same location' : 'short stay';
      return;
    }
    const rest = reads.slice(i);
    const leaves = rest.find(({ place }) => place !== read.place);
    const until = leaves === undefined ? (rest.at(-1) as ModelRead).at : leaves.at;
    stayCounts = i === 0 || until - read.at >= minimumStay;
    if (counted === read.place) verdicts[read.hash] = 'same location';
    else if (!stayCounts) verdicts[read.hash] = 'short stay';
    else {
      const from = counted;
      counted = read.place;
      const last = movements.findLast((one) => one.from === from && one.to === read.place);
      if (last !== undefined && (read.at - last.at < window || read.at === last.at)) {
        last.repeats += 1;
        last.lastAt = read.at;
        verdicts[read.hash] = 'same movement';
      } else {
        movements.push({ from, to: read.place, at: read.at, device: read.device, repeats: 0, lastAt: null });
        verdicts[read.hash] = null;
      }
    }
  });
  const last = reads.at(-1) as ModelRead;
  return {
    place: last.place,
    device: last.device,
    firstSeen: (reads[0] as ModelRead).at,
    lastSeen: last.at,
    movements,
    verdicts,
  };
}
