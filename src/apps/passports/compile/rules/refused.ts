import { attributeNamed } from '../attributes.ts';
import { unitNamed } from '../units.ts';
import { childrenOf, isMacro, type Node } from './ast.ts';
import { itemColumns, lists, namespaces, productColumns } from './environment.ts';
import { functions } from './functions.ts';
import { standardFunctions } from './standard.ts';

/*
 * What CEL has and rules may not use (BPC-7): whatever is not exact, or depends on where it runs. It is a list of what is
 * allowed, so that a new version of the library adds nothing by itself.
 */

interface Refusal {
  readonly node: Node;
  readonly sentence: string;
}

const advice: Readonly<Record<string, string>> = {
  double: 'floating point is not exact; write a decimal with its unit, as in Kg("12.5") or Number("0.5")',
  dyn: 'dyn hides a type; every value in a rule has one that is known before it runs',
  matches: 'regular expressions are refused; use contains, startsWith, endsWith or ==',
  timestamp: 'times and time zones are refused; a date is a string YYYY-MM-DD, which compares as it is',
  duration: 'durations are refused; write Year("8") or Month("96")',
};
for (const name of ['Date', 'DayOfMonth', 'DayOfWeek', 'DayOfYear', 'FullYear', 'Hours', 'Minutes', 'Month'])
  Object.assign(advice, { [`get${name}`]: advice.timestamp });
const instead = new Map(Object.entries(advice));

const allowed = new Set([...Object.keys(functions), ...standardFunctions]);

/** The first part of an expression that is not in the language of rules. */
export function refused(ast: Node): Refusal | undefined {
  return look(ast, new Set());
}

function look(node: Node, bound: ReadonlySet<string>): Refusal | undefined {
  const sentence = sentenceFor(node, bound);
  if (sentence !== undefined) return { node, sentence };
  if (isNamespaceRead(node, bound)) return undefined;
  const inner = node.op === 'rcall' && isMacro(node.args[0]) ? withVariable(node.args[2][0], bound) : bound;
  for (const [at, child] of childrenOf(node).entries()) {
    // The list that a macro goes over does not see the macro's variable.
    const found = look(child, at === 0 ? bound : inner);
    if (found) return found;
  }
  return undefined;
}

const withVariable = (variable: Node | undefined, bound: ReadonlySet<string>): ReadonlySet<string> =>
  variable?.op === 'id' ? new Set([...bound, variable.args]) : bound;

function isNamespaceRead(node: Node, bound: ReadonlySet<string>): boolean {
  return node.op === '.' && node.args[0].op === 'id' && isNamespace(node.args[0].args, bound);
}

const isNamespace = (name: string, bound: ReadonlySet<string>): boolean =>
  !bound.has(name) && (namespaces as readonly string[]).includes(name);

function sentenceFor(node: Node, bound: ReadonlySet<string>): string | undefined {
  switch (node.op) {
    case 'value':
      return literalSentence(node.args);
    case '/':
      return 'there is no operator /; write div(a, b, digits), which says to how many digits it rounds';
    case '%':
      return 'there is no operator %; rules divide with div(a, b, digits) only';
    case 'map':
      return 'there are no maps in rules; a rule has one value, or a list';
    case '.?':
    case '[?]':
      return 'optional access is refused; use has(sheet.x) ? … : …';
    case '[]':
      return node.args[0].op === 'id' && isNamespace(node.args[0].args, bound)
        ? `write ${node.args[0].args}.name instead of brackets`
        : undefined;
    case 'id':
      if (bound.has(node.args) || Object.hasOwn(lists, node.args)) return undefined;
      if (isNamespace(node.args, bound))
        return `${node.args} has no value of its own; read ${node.args}.name`;
      return `there is no variable ${node.args}; there are ${[...Object.keys(lists), ...namespaces].join(', ')}`;
    case 'call':
      if (node.args[0] === 'has') return hasSentence(node.args[1][0], bound);
      return callSentence(node.args[0]);
    case 'rcall':
      return isMacro(node.args[0]) ? shadowSentence(node.args[2][0]) : callSentence(node.args[0]);
    default:
      return undefined;
  }
}

function literalSentence(value: unknown): string | undefined {
  if (typeof value === 'number') return instead.get('double');
  if (typeof value === 'string' || typeof value === 'bigint' || typeof value === 'boolean') return undefined;
  if (value === null) return 'null is refused; a value that may be missing is asked for with has(sheet.x)';
  return 'unsigned integers and bytes are refused; write an integer or a string';
}

function callSentence(name: string): string | undefined {
  if (allowed.has(name) || unitNamed(name)) return undefined;
  return instead.get(name) ?? `there is no function ${name}; there are ${[...allowed].sort().join(', ')}`;
}

function shadowSentence(variable: Node | undefined): string | undefined {
  if (variable?.op !== 'id') return undefined;
  const taken = Object.hasOwn(lists, variable.args) || isNamespace(variable.args, new Set());
  return taken ? `${variable.args} has a meaning already; choose another name for the element` : undefined;
}

/** The library does not look into has(): a misspelt name would be false for ever. */
function hasSentence(argument: Node | undefined, bound: ReadonlySet<string>): string | undefined {
  if (argument?.op !== '.' || !isNamespaceRead(argument, bound))
    return 'has() takes sheet.x, product.x, item.x or fields.x';
  const [from, name] = [String(argument.args[0].args), argument.args[1]];
  if (from === 'sheet' && !attributeNamed(name)) return `there is no attribute ${name}`;
  if (from === 'product' && !Object.hasOwn(productColumns, name)) return `a product has no ${name}`;
  if (from === 'item' && !Object.hasOwn(itemColumns, name)) return `an item has no ${name}`;
  return undefined;
}
