import { rows } from './attribute-rows.ts';
import { type AccessPoint, type Category, categories } from './types.ts';

export type AttributeGroup =
  | 'identification'
  | 'conformity'
  | 'footprint'
  | 'diligence'
  | 'materials'
  | 'circularity'
  | 'performance';

/** What a battery passport says, or a figure that it is computed from. */
export interface Attribute {
  /** The name of the field, and of the row in a data sheet. */
  readonly name: string;
  readonly title: { readonly en: string; readonly de: string };
  /** A type of the rules: `string`, `int`, `Kg`, `list<Material>` … */
  readonly type: string;
  readonly point: AccessPoint;
  /** Dynamic ones change during a battery's life: individual data, signed events beside the compiled version. */
  readonly dynamic: boolean;
  readonly granularity: 'model' | 'item';
  readonly mandatory: readonly Category[];
  readonly voluntary: readonly Category[];
  /** Of Regulation (EU) 2023/1542, if no other law is named. Empty: no article asks for it. */
  readonly article: string;
  readonly group: AttributeGroup;
}

export const attributes: readonly Attribute[] = rows.map(
  ([name, point, about, obligation, type, article, group, en, de]) => ({
    name,
    title: { en, de },
    type,
    point,
    granularity: about.startsWith('model') ? 'model' : 'item',
    dynamic: about.endsWith('dynamic'),
    mandatory: categories.filter((_, at) => obligation[at] === 'x'),
    voluntary: categories.filter((_, at) => obligation[at] === 'o'),
    article,
    group,
  }),
);

const byName = new Map(attributes.map((attribute) => [attribute.name, attribute]));

export const attributeNamed = (name: string): Attribute | undefined => byName.get(name);

export const mandatoryFor = (category: Category): readonly Attribute[] =>
  attributes.filter(({ mandatory }) => mandatory.includes(category));
