import { createHash } from 'node:crypto';
import { Chance } from './chance.ts';
import type { FaultKind, LabelSettings, SimulatorSettings } from './settings.ts';

/** One image that the gateway has accepted. */
export interface AcceptedImage {
  /** Counts all images of all labels, in the order in which they were accepted. */
  readonly number: number;
  readonly page: number;
  /** Of its pixels, as `LabelImage.hash`; null where the image could not be read. */
  readonly hash: string | null;
  readonly bytesHash: string;
  readonly acceptedAt: number;
  /** When the label shows it; null: never. */
  readonly shownAt: number | null;
}

export interface SimulatedLabel {
  readonly mac: string;
  readonly images: AcceptedImage[];
  /** The last image of each page, as it came. */
  readonly files: Map<number, { readonly type: string; readonly content: Buffer }>;
  settings: LabelSettings;
  /** Images sent, accepted or not. Faults depend on this number, not on the order of calls between labels. */
  asked: number;
}

export type Status = 'SUCCESS' | 'PROCESSING' | 'TIMEOUT' | 'NONE';

/** The labels of the simulated stores, and what each has been sent. */
export class SimulatedLabels {
  readonly #labels = new Map<string, SimulatedLabel>();
  readonly #seed: number;
  #accepted = 0;
  #byMac: readonly SimulatedLabel[] | undefined;

  constructor(seed: number) {
    this.#seed = seed;
  }

  get size(): number {
    return this.#labels.size;
  }

  get accepted(): number {
    return this.#accepted;
  }

  get(mac: string): SimulatedLabel | undefined {
    return this.#labels.get(mac);
  }

  all(): readonly SimulatedLabel[] {
    return [...this.#labels.values()];
  }

  /** In the order of their MACs, as AIMS lists them. */
  byMac(): readonly SimulatedLabel[] {
    this.#byMac ??= this.all().toSorted((a, b) => (a.mac < b.mac ? -1 : 1));
    return this.#byMac;
  }

  register(mac: string): SimulatedLabel {
    let label = this.#labels.get(mac);
    if (!label) {
      label = { mac, images: [], files: new Map(), settings: {}, asked: 0 };
      this.#labels.set(mac, label);
      this.#byMac = undefined;
    }
    return label;
  }

  clear(): void {
    this.#labels.clear();
    this.#byMac = undefined;
  }

  /** Chance for the next image of a label: with the same seed, the nth image has the same outcome. */
  chance(label: SimulatedLabel): Chance {
    label.asked += 1;
    return new Chance(`${this.#seed} ${label.mac} ${label.asked}`);
  }

  accept(
    label: SimulatedLabel,
    image: Pick<AcceptedImage, 'page' | 'hash'> & { readonly type: string; readonly content: Buffer },
    settings: SimulatorSettings,
    chance: Chance,
  ): AcceptedImage {
    this.#accepted += 1;
    const acceptedAt = Date.now();
    const never = label.settings.timesOut === true || chance.chance(settings.labelTimeouts);
    const accepted: AcceptedImage = {
      number: this.#accepted,
      page: image.page,
      hash: image.hash,
      bytesHash: createHash('sha256').update(image.content).digest('hex'),
      acceptedAt,
      shownAt: never ? null : acceptedAt + within(settings.shownAfter, chance),
    };
    label.images.push(accepted);
    label.files.set(image.page, { type: image.type, content: image.content });
    return accepted;
  }
}

export const within = ({ minMs, maxMs }: { minMs: number; maxMs: number }, chance: Chance): number =>
  minMs + chance.next() * (maxMs - minMs);

/** The status of the last image sent. */
export function statusOf({ images }: SimulatedLabel, now: number): Status {
  const last = images.at(-1);
  if (!last) return 'NONE';
  if (last.shownAt === null) return 'TIMEOUT';
  return now >= last.shownAt ? 'SUCCESS' : 'PROCESSING';
}

/** What the label shows on each page: the last image that has reached it. */
export function shownOn({ images }: SimulatedLabel, now: number): ReadonlyMap<number, AcceptedImage> {
  const shown = new Map<number, AcceptedImage>();
  for (const image of images)
    if (image.shownAt !== null && image.shownAt <= now) shown.set(image.page, image);
  return shown;
}

/** The kind of fault that this call is to have, if any. */
export function faultFor(faults: SimulatorSettings['faults'], chance: Chance): FaultKind | undefined {
  let drawn = chance.next();
  for (const [kind, share] of Object.entries(faults) as [FaultKind, number][]) {
    if (drawn < share) return kind;
    drawn -= share;
  }
  return undefined;
}
