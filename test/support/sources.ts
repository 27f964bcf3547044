import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseAst } from 'vitest/node';

const root = join(import.meta.dirname, '../..');

/** Files under `src`, as paths from the repository's root, that end in one of these. */
export function sourcesOf(...endings: readonly string[]): string[] {
  return readdirSync(join(root, 'src'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

export const readSource = (path: string): string => readFileSync(join(root, path), 'utf8');

/** Every text between quotes, in order: what a program can send to PostgreSQL. Comments and code are left out. */
export function textsOf(source: string): string[] {
  const texts: string[] = [];
  for (const node of nodesOf(parseAst(source, { lang: 'ts' }))) {
    if (node.type === 'Literal' && typeof node.value === 'string') texts.push(node.value);
    if (node.type === 'TemplateElement') texts.push((node.value as { cooked: string }).cooked);
  }
  return texts;
}

/** What a module imports or passes on, types included, as it is written. */
export function importsOf(source: string): string[] {
  return [...nodesOf(parseAst(source, { lang: 'ts' }))].flatMap(({ type, source: from }) =>
    /^(Import|Export)(Declaration|Expression|NamedDeclaration|AllDeclaration)$/.test(type) && isText(from)
      ? [from.value]
      : [],
  );
}

const isText = (node: unknown): node is { readonly value: string } =>
  typeof (node as { readonly value?: unknown } | null | undefined)?.value === 'string';

interface Node {
  readonly type: string;
  readonly [key: string]: unknown;
}

function* nodesOf(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const item of value) yield* nodesOf(item);
  else if (typeof value === 'object' && value !== null) {
    if ('type' in value && typeof value.type === 'string') yield value as Node;
    for (const child of Object.values(value)) yield* nodesOf(child);
  }
}
