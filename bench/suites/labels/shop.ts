/** The labels of a run: what they show before and after, and how that is looked up at the gateway. */
import {
  builtInTemplate,
  type LabelImage,
  type Panel,
  RenderPool,
} from '../../../src/apps/labels/render/index.ts';

export const panel: Panel = { width: 296, height: 160, palette: 'bwr' };
export const svg = builtInTemplate(panel);
const pool = new RenderPool();

/** What is under way at once, for every system. */
export const CONCURRENCY = 24;

export const mac = (label: number): string => `0015${label.toString(16).toUpperCase().padStart(8, '0')}`;
export const sku = (label: number): string => `P${label}`;
export const nameOf = (label: number): string => `Product ${label} of a shelf, 500 g`;
/** No two are alike, and none is what the label showed before. */
export const price = (label: number, state: 'before' | 'after'): string =>
  `${1 + (label % 90)}.${state === 'before' ? '10' : '99'}`;
export const store = { currency: 'EUR', locale: 'de-DE' } as const;

export const imageOf = (label: number, state: 'before' | 'after'): Promise<LabelImage> =>
  pool.render('bench', {
    svg,
    values: { ...store, sku: sku(label), name: nameOf(label), price: price(label, state) },
    panel,
  });

export const gateway = (url: string) =>
  ({
    kind: 'aims',
    url,
    company: 'bench',
    store: 'bench',
    username: 'bench',
    password: 'bench',
    timeoutMs: 30_000,
  }) as const;

/** Runs `work` for 0 … count - 1, CONCURRENCY at a time. */
export async function forEach(count: number, work: (label: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
}

interface Shown {
  readonly labels: readonly { readonly mac: string; readonly shown: Readonly<Record<string, string>> }[];
}

/** Every label shows its last state, as the gateway has it. */
export async function verifyShown(simulator: string, labels: number): Promise<void> {
  const answer = await fetch(`${simulator}/simulator/labels`);
  const shown = new Map(
    ((await answer.json()) as Shown).labels.map((label) => [label.mac, label.shown['1']]),
  );
  let wrong = 0;
  await forEach(labels, async (label) => {
    if (shown.get(mac(label)) !== (await imageOf(label, 'after')).hash) wrong += 1;
  });
  if (wrong > 0 || shown.size !== labels)
    throw new Error(
      `${wrong} of ${labels} labels do not show their last state; the gateway knows ${shown.size}`,
    );
}
