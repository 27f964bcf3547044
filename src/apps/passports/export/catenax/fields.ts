import type { Json, JsonObject } from '../../compile/index.ts';
import { type Disclosed, disclosedFields } from '../../page/disclosure.ts';
import { isMaterial, titleOf } from '../../page/values.ts';
import { plainValue } from '../plain.ts';
import { type Draft, gap } from './supplement.ts';

/** Reads a passport's fields in the shapes that the aspect model has. What is not there is a gap. */
export class AspectFields {
  readonly #values: ReadonlyMap<string, Json>;
  readonly #issuedAt: string;
  /** The newest individual record of each type. */
  readonly #records: ReadonlyMap<string, { readonly value: Json; readonly at: string }>;

  constructor(disclosed: Disclosed) {
    this.#values = new Map(
      [...disclosedFields(disclosed).values()].flatMap(({ name, result }) =>
        result.status === 'value' ? [[name, plainValue(result.value)] as const] : [],
      ),
    );
    this.#issuedAt = disclosed.version.receipt.issued_at;
    this.#records = new Map(
      [...(disclosed.individual ?? [])]
        .sort((a, b) => a.seq - b.seq)
        .flatMap(({ type, at, data }) => {
          const value = data.value ?? data[type];
          return value === undefined ? [] : [[type, { value: plainValue(value), at }] as const];
        }),
    );
  }

  /** As it is; undefined if the passport has none. */
  get(name: string): Json | undefined {
    return this.#values.get(name);
  }

  text(name: string): Draft {
    const value = this.#values.get(name);
    return value === undefined ? gap : String(value);
  }

  number(name: string): Draft {
    const value = this.#values.get(name);
    return typeof value === 'number' ? value : gap;
  }

  /** Pre- and post-consumer recycled content together. */
  recycled(metal: string): Draft {
    const [before, after] = [this.number(`recycled${metal}Pre`), this.number(`recycled${metal}Post`)];
    // Thousandths of a per cent are kept; the sum of two doubles alone could show others.
    return typeof before === 'number' && typeof after === 'number'
      ? Math.round((before + after) * 1e6) / 1e6
      : gap;
  }

  /** A link or a text as a list of one document. */
  documents(name: string): Draft {
    const value = this.#values.get(name);
    return value === undefined ? gap : [documentOf(String(value), titleOf(name, 'en'))];
  }

  /** A measured value with its time: from the individual data, else as the passport was issued. */
  record(name: string): Draft {
    const record = this.#records.get(name);
    if (record && typeof record.value === 'number') return { value: record.value, time: record.at };
    const value = this.#values.get(name);
    return typeof value === 'number' ? { value, time: this.#issuedAt } : { value: gap, time: gap };
  }

  materials(): readonly JsonObject[] {
    const value = this.#values.get('electrodeMaterials');
    return Array.isArray(value) ? value.filter(isMaterial) : [];
  }
}

export const documentOf = (content: string, header: string): JsonObject => ({
  header: header.slice(0, 100),
  content,
  contentType: /^https?:\/\//.test(content) ? 'URL' : 'text/plain',
});
