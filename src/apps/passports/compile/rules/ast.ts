import type { ASTNode } from '@marcbachmann/cel-js';
import type { RulePosition } from '../types.ts';

/** The library's node with the type that the checker left on it; its typings do not say so. */
export type Node = ASTNode;

export const checkedType = (
  node: Node,
): { readonly name: string; readonly hasDynType: boolean } | undefined =>
  (node as { readonly checkedType?: { readonly name: string; readonly hasDynType: boolean } }).checkedType;

/** The type that the checker found. Every node that is evaluated has one. */
export const typeOf = (node: Node): string => checkedType(node)?.name ?? '';

export const macros = ['all', 'exists', 'exists_one', 'map', 'filter'] as const;
export type Macro = (typeof macros)[number];
export const isMacro = (name: string): name is Macro => (macros as readonly string[]).includes(name);

/** The nodes that a node is made of, in the order of the text. The variable of a macro is none of them. */
export function childrenOf(node: Node): readonly Node[] {
  switch (node.op) {
    case 'value':
    case 'id':
      return [];
    case '.':
    case '.?':
      return [node.args[0]];
    case 'call':
      return node.args[1];
    case 'rcall': {
      const [name, receiver, args] = node.args;
      return [receiver, ...(isMacro(name) ? args.slice(1) : args)];
    }
    case 'list':
      return node.args;
    case 'map':
      return node.args.flat();
    case '!_':
    case '-_':
      return [node.args];
    default:
      return node.args;
  }
}

/** In the order of the text. Not recursive: `1 + 1 + …` is as deep as it is long, and each level would pass on all below it. */
export function* walk(root: Node): Generator<Node> {
  const pending = [root];
  for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
    yield node;
    pending.push(...[...childrenOf(node)].reverse());
  }
}

/** Some nodes say where their operator is; `start` and `end` are of the whole sub-expression. */
export function positionOf(
  input: string,
  { start, end }: { readonly start: number; readonly end: number },
): RulePosition {
  const before = input.slice(0, start);
  const line = before.split('\n').length;
  return { line, column: start - before.lastIndexOf('\n'), start, end };
}
