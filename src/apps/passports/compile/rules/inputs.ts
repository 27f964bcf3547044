import { CompileError } from '../errors.ts';
import type { Fact, FactType, Hash, Item, Json, Product } from '../types.ts';
import {
  itemColumns,
  type ListVariable,
  lists,
  type Namespace,
  productColumns,
  sheetColumns,
} from './environment.ts';
import type { Inputs, Traced } from './evaluate.ts';
import { fromJson, recordFrom, type Value } from './values.ts';

/** Makes the nodes of what rules read. */
export interface InputTracer {
  fact(fact: Fact): Hash;
  absent(factType: FactType, key: string): Hash;
  input(path: string, value: Json): Hash;
  list(name: ListVariable, children: readonly Hash[]): Hash;
}

/** A rule's value, for rules that read it. Without value: the rule gave none. */
export interface FieldValue {
  readonly value: Value | undefined;
  readonly node: Hash;
}

const factTypeOf: Readonly<Record<ListVariable, FactType>> = {
  materials: 'material',
  footprint: 'footprint_stage',
  diligence: 'diligence',
};

/** What expressions read: facts, product, item, and fields that have been computed. Each is looked up once. */
export class CompileInputs implements Inputs {
  readonly #facts: ReadonlyMap<FactType, readonly Fact[]>;
  readonly #sheet: ReadonlyMap<string, Fact>;
  readonly #product: Product;
  readonly #item: Item | null;
  readonly #tracer: InputTracer;
  readonly #fields: ReadonlyMap<string, FieldValue>;
  readonly #lists = new Map<ListVariable, Traced>();

  constructor(
    input: { readonly facts: readonly Fact[]; readonly product: Product; readonly item: Item | null },
    fields: ReadonlyMap<string, FieldValue>,
    tracer: InputTracer,
  ) {
    const facts = new Map<FactType, Fact[]>();
    for (const fact of input.facts) {
      const list = facts.get(fact.type);
      if (list) list.push(fact);
      else facts.set(fact.type, [fact]);
    }
    this.#facts = facts;
    this.#sheet = new Map(facts.get('attribute')?.map((fact) => [fact.key, fact]));
    this.#product = input.product;
    this.#item = input.item;
    this.#fields = fields;
    this.#tracer = tracer;
  }

  /** Undefined for a list without facts: that no document was uploaded does not mean that there is nothing. */
  list(name: ListVariable): Traced | undefined {
    const known = this.#lists.get(name);
    if (known) return known;
    const elements = (this.#facts.get(factTypeOf[name]) ?? []).map((fact): Traced => {
      const value = recordFrom(lists[name], fact.payload);
      if (!value) throw unusable(fact);
      return { value, node: this.#tracer.fact(fact) };
    });
    if (elements.length === 0) return undefined;
    const node = this.#tracer.list(
      name,
      elements.flatMap((each) => each.node ?? []),
    );
    const list = { value: elements.map(({ value }) => value), node, elements };
    this.#lists.set(name, list);
    return list;
  }

  absentList(name: ListVariable): Hash {
    return this.#tracer.absent(factTypeOf[name], '*');
  }

  read(namespace: Namespace, name: string): Traced | undefined {
    switch (namespace) {
      case 'sheet':
        return this.#attribute(name);
      case 'product':
        return this.#input('product', productColumns, name, this.#product);
      case 'item':
        return this.#item ? this.#input('item', itemColumns, name, this.#item) : undefined;
      case 'fields': {
        const field = this.#fields.get(name);
        return field?.value === undefined ? undefined : { value: field.value, node: field.node };
      }
    }
  }

  absent(namespace: Namespace, name: string): Hash | undefined {
    if (namespace === 'sheet') return this.#tracer.absent('attribute', name);
    return namespace === 'fields' ? this.#fields.get(name)?.node : undefined;
  }

  #attribute(name: string): Traced | undefined {
    const fact = this.#sheet.get(name);
    if (!fact) return undefined;
    const value = fromJson(sheetColumns[name] ?? '', fact.payload.value);
    if (value === undefined) throw unusable(fact);
    return { value, node: this.#tracer.fact(fact) };
  }

  #input(from: string, columns: object, name: string, values: object): Traced | undefined {
    const value = Object.hasOwn(columns, name) ? (values as Record<string, unknown>)[name] : undefined;
    if (typeof value !== 'string') return undefined;
    return { value, node: this.#tracer.input(`${from}.${name}`, value) };
  }
}

const unusable = (fact: Fact): CompileError =>
  new CompileError(
    'VALIDATION_ERROR',
    `the fact ${fact.type} "${fact.key}" has a payload that does not fit its type; parse its document again`,
    { factType: fact.type, factKey: fact.key },
  );
