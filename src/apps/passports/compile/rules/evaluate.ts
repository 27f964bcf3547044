import { CompileError, type CompileErrorCode } from '../errors.ts';
import { negate, Quantity } from '../quantity.ts';
import type { Hash, Json } from '../types.ts';
import { unitNamed } from '../units.ts';
import { isMacro, type Macro, type Node, positionOf, typeOf } from './ast.ts';
import { BudgetExceeded, budgetOfCompile, costOf, type StepBudget } from './budget.ts';
import { type ListVariable, lists, type Namespace, namespaces } from './environment.ts';
import { division, functions, literal } from './functions.ts';
import { compareOrCombine, documentOf, missing, standard } from './standard.ts';
import { exactInteger, FactRecord, isList, type Value, valueForProof } from './values.ts';

/*
 * Evaluates a checked expression and keeps how: each sub-expression becomes a node of the derivation, with its value and the
 * nodes of what it was computed from. Elements of comprehensions have nodes of their own, which wrapping the library's
 * evaluator would miss. What is not evaluated (the other branch of a condition) is not in the derivation.
 *
 * Literals have no nodes: they are in the rule's text. The same expression gives the same value as the library's evaluator;
 * test/apps/passports/compile/oracle.unit.test.ts compares the two.
 */

/** A value, and the node that says where it came from: undefined for literals. */
export interface Traced {
  readonly value: Value;
  readonly node: Hash | undefined;
  /** Of a list: each element with its own node. */
  readonly elements?: readonly Traced[];
}

export interface Tracer {
  expression(
    node: { readonly rule: string; readonly start: number; readonly end: number; readonly op: string },
    value: Json,
    children: readonly Hash[],
    more?: { readonly [key: string]: Json },
  ): Hash;
}

/** Where names come from. `undefined`: there is no such fact; `absent` then gives the node that says so. */
export interface Inputs {
  list(name: ListVariable): Traced | undefined;
  absentList(name: ListVariable): Hash | undefined;
  read(namespace: Namespace, name: string): Traced | undefined;
  absent(namespace: Namespace, name: string): Hash | undefined;
}

/** Fails at a sub-expression. The rule is known here, so that the message can name it. */
export class EvaluationFailure extends CompileError {
  /** The node of the part that failed: it leads to everything that was read until then. */
  node: Hash | undefined;

  constructor(code: CompileErrorCode, message: string, at: { readonly rule: string; readonly node: Node }) {
    const position = positionOf(at.node.input, at.node);
    super(code, `rule ${at.rule}, line ${position.line}, column ${position.column}: ${message}`, {
      rule: at.rule,
      position,
    });
  }
}

/** The rule alone needs too much: no `||` and no `exists` goes on without it. */
class TooManySteps extends EvaluationFailure {}

/** A failure has a message with its place and a stack: making one takes as long as fifty steps. */
const stepsOfFailure = 50;

type Variables = ReadonlyMap<string, Traced>;

export class Evaluation {
  readonly #rule: string;
  readonly #inputs: Inputs;
  readonly #tracer: Tracer;
  readonly #budget: StepBudget;
  #steps = 0;
  /** Nodes of all inputs that were read, while something is attempted. */
  #read: Hash[] = [];

  constructor(rule: string, inputs: Inputs, tracer: Tracer, budget: StepBudget = budgetOfCompile()) {
    this.#rule = rule;
    this.#inputs = inputs;
    this.#tracer = tracer;
    this.#budget = budget;
  }

  /** The value of a rule. A failure has a node, too: that a fact is missing can be part of a passport. */
  evaluate(ast: Node): Traced {
    const result = this.#attempt(ast, new Map());
    if (result instanceof EvaluationFailure) throw result;
    return result;
  }

  #run(node: Node, variables: Variables): Traced {
    this.#spend(node, 1);
    switch (node.op) {
      case 'value':
        return { value: node.args as Value, node: undefined };
      case 'id':
        return this.#note(variables.get(node.args) ?? this.#variable(node, node.args));
      case '.':
        return this.#select(node, node.args[0], node.args[1], variables);
      case '[]':
        return this.#index(node, node.args[0], node.args[1], variables);
      case 'call':
        return this.#call(node, node.args[0], node.args[1], variables);
      case 'rcall': {
        const [name, receiver, args] = node.args;
        if (isMacro(name)) return this.#comprehension(node, name, receiver, args, variables);
        return this.#call(node, name, [receiver, ...args], variables);
      }
      case 'list': {
        const elements = node.args.map((each) => this.#run(each, variables));
        return {
          ...this.#result(
            node,
            elements.map(({ value }) => value),
            elements,
          ),
          elements,
        };
      }
      case '?:':
        return this.#condition(node, node.args, variables);
      case '||':
        return this.#logical(node, node.args, true, variables);
      case '&&':
        return this.#logical(node, node.args, false, variables);
      case '!_': {
        const operand = this.#run(node.args, variables);
        return this.#result(node, operand.value !== true, [operand]);
      }
      case '-_': {
        const operand = this.#run(node.args, variables);
        const { value } = operand;
        return this.#result(node, value instanceof Quantity ? negate(value) : -(value as bigint), [operand]);
      }
      case 'map':
      case '.?':
      case '[?]':
      case '/':
      case '%':
        throw this.#failure(node, 'RULE_TYPE_ERROR', `${node.op} is not part of the rule language`);
      default:
        return this.#binary(node, node.op, node.args, variables);
    }
  }

  #variable(node: Node, name: string): Traced {
    if (!Object.hasOwn(lists, name))
      throw this.#failure(node, 'RULE_TYPE_ERROR', `there is no variable ${name}`);
    const list = name as ListVariable;
    const found = this.#inputs.list(list);
    if (found) return found;
    const sentence = `there are no ${name}; upload the ${documentOf[list]}, or let the rule be undetermined`;
    this.#note({ node: this.#inputs.absentList(list) });
    throw this.#failure(node, 'FACT_MISSING', sentence);
  }

  #select(node: Node, from: Node, name: string, variables: Variables): Traced {
    const namespace = namespaceOf(from, variables);
    if (namespace !== undefined) {
      const found = this.#inputs.read(namespace, name);
      if (found) return this.#note(found);
      this.#note({ node: this.#inputs.absent(namespace, name) });
      throw this.#failure(node, 'FACT_MISSING', missing(namespace, name));
    }
    const record = this.#run(from, variables);
    const value = record.value instanceof FactRecord ? record.value[name] : undefined;
    if (value === undefined) throw this.#failure(node, 'FACT_MISSING', `there is no ${name}`);
    return this.#withElements(node, this.#result(node, value, [record]));
  }

  #index(node: Node, list: Node, at: Node, variables: Variables): Traced {
    const [from, index] = [this.#run(list, variables), this.#run(at, variables)];
    const elements = this.#elementsOf(node, from);
    const found = elements[Number(index.value)];
    if (!found)
      throw this.#failure(
        node,
        'FACT_MISSING',
        `the list has ${elements.length} elements, there is none with the index ${String(index.value)}`,
      );
    // The list first: which element it is can depend on more than the element.
    const children = found.node === from.node ? [from, index] : [from, found, index];
    const result = this.#result(node, found.value, children);
    return this.#withElements(node, result);
  }

  #call(node: Node, name: string, args: readonly Node[], variables: Variables): Traced {
    if (name === 'has') return this.#has(node, args[0], variables);
    const operands = args.map((each) => this.#run(each, variables));
    const values = operands.map(({ value }) => value);
    this.#spend(node, costOfCall(name, values));
    const returns = typeOf(node);
    return this.#guard(node, () => {
      if (name === 'div') {
        const { result, numerator, denominator } = division(values, returns);
        const more = { numerator: exactInteger(numerator), denominator: exactInteger(denominator) };
        return this.#result(node, result, operands, more);
      }
      const value = unitNamed(name)
        ? literal(name, values[0])
        : (functions[name]?.(values, returns) ?? standard(name, values));
      if (value === undefined) throw this.#failure(node, 'RULE_TYPE_ERROR', `there is no function ${name}`);
      return this.#withElements(node, this.#result(node, value, operands));
    });
  }

  /** True if the fact is there. Which fact was asked for is in the derivation in both cases. */
  #has(node: Node, argument: Node | undefined, variables: Variables): Traced {
    const namespace = argument?.op === '.' ? namespaceOf(argument.args[0], variables) : undefined;
    if (argument?.op !== '.' || namespace === undefined)
      throw this.#failure(node, 'RULE_TYPE_ERROR', 'has() takes sheet.x, product.x, item.x or fields.x');
    const name = argument.args[1];
    const found = this.#inputs.read(namespace, name);
    const child = found ? found.node : this.#inputs.absent(namespace, name);
    return this.#result(node, found !== undefined, [this.#note({ value: true, node: child })]);
  }

  #condition(node: Node, [test, yes, no]: readonly [Node, Node, Node], variables: Variables): Traced {
    const decided = this.#run(test, variables);
    const chosen = this.#run(decided.value === true ? yes : no, variables);
    const result = this.#result(node, chosen.value, [decided, chosen]);
    return chosen.elements ? { ...result, elements: chosen.elements } : result;
  }

  /** `decisive` on either side decides, even if the other side failed: that is CEL. */
  #logical(
    node: Node,
    [left, right]: readonly [Node, Node],
    decisive: boolean,
    variables: Variables,
  ): Traced {
    const first = this.#attempt(left, variables);
    if (!(first instanceof EvaluationFailure) && first.value === decisive)
      return this.#result(node, decisive, [first]);
    const second = this.#run(right, variables);
    if (first instanceof EvaluationFailure) {
      if (second.value !== decisive) throw first;
      return this.#result(node, decisive, [{ value: decisive, node: first.node }, second]);
    }
    return this.#result(node, second.value, [first, second]);
  }

  #binary(node: Node, op: string, [left, right]: readonly [Node, Node], variables: Variables): Traced {
    const operands = [this.#run(left, variables), this.#run(right, variables)] as const;
    const [a, b] = [operands[0].value, operands[1].value];
    this.#spend(node, costOf(a) + costOf(b));
    return this.#guard(node, () => {
      const value = compareOrCombine(op, a, b);
      const result = this.#result(node, value, operands);
      if (op !== '+' || !isList(value)) return result;
      return { ...result, elements: operands.flatMap((each) => this.#elementsOf(node, each)) };
    });
  }

  #comprehension(
    node: Node,
    macro: Macro,
    receiver: Node,
    args: readonly Node[],
    variables: Variables,
  ): Traced {
    const list = this.#run(receiver, variables);
    const name = args[0]?.op === 'id' ? args[0].args : '';
    const body = args.slice(1);
    const steps: Traced[] = [];
    const step = (at: Node | undefined, element: Traced): Traced => {
      if (!at) throw this.#failure(node, 'RULE_TYPE_ERROR', `${macro} has too few arguments`);
      const result = this.#run(at, new Map(variables).set(name, element));
      steps.push(result);
      return result;
    };
    const elements = this.#elementsOf(node, list);
    if (macro === 'all' || macro === 'exists') {
      const value = this.#quantify(node, macro === 'exists', body[0], elements, name, variables, steps);
      return this.#result(node, value, [list, ...steps]);
    }
    if (macro === 'exists_one') {
      const found = elements.filter((element) => step(body[0], element).value === true);
      return this.#result(node, found.length === 1, [list, ...steps]);
    }
    const filters = macro === 'filter' || body.length === 2;
    const kept = filters ? elements.filter((element) => step(body[0], element).value === true) : elements;
    const results = macro === 'filter' ? kept : kept.map((element) => step(body.at(-1), element));
    const result = this.#result(
      node,
      results.map(({ value }) => value),
      [list, ...steps],
    );
    return { ...result, elements: results };
  }

  /** Stops at the first element that decides. A failed element counts only if none decides: that is CEL. */
  #quantify(
    node: Node,
    decisive: boolean,
    body: Node | undefined,
    elements: readonly Traced[],
    name: string,
    variables: Variables,
    steps: Traced[],
  ): boolean {
    if (!body) throw this.#failure(node, 'RULE_TYPE_ERROR', 'there is no condition');
    let failure: EvaluationFailure | undefined;
    for (const element of elements) {
      const result = this.#attempt(body, new Map(variables).set(name, element));
      if (result instanceof EvaluationFailure) {
        failure ??= result;
        steps.push({ value: false, node: result.node });
        continue;
      }
      steps.push(result);
      if (result.value === decisive) return decisive;
    }
    if (failure) throw failure;
    return !decisive;
  }

  /**
   * A part that may fail while the whole goes on. Whether it failed depends on everything that it read, so that all of it is
   * in the failure's node: otherwise a reader who sees that node would learn something about facts that are withheld.
   */
  #attempt(node: Node, variables: Variables): Traced | EvaluationFailure {
    const before = this.#read;
    this.#read = [];
    try {
      return this.#run(node, variables);
    } catch (error) {
      if (!(error instanceof EvaluationFailure) || error instanceof TooManySteps) throw error;
      error.node = this.#failedNode(node, error.code, [...new Set(this.#read)]);
      return error;
    } finally {
      for (const hash of this.#read) before.push(hash);
      this.#read = before;
    }
  }

  /** That one fact is missing says enough if nothing else was read. */
  #failedNode({ start, end }: Node, code: CompileErrorCode, read: readonly Hash[]): Hash | undefined {
    if (read.length === 1) return read[0];
    const at = { rule: this.#rule, start, end, op: 'failed' };
    return this.#tracer.expression(at, { error: code }, read);
  }

  #note<T extends { readonly node: Hash | undefined }>(traced: T): T {
    if (traced.node !== undefined) this.#read.push(traced.node);
    return traced;
  }

  #elementsOf(node: Node, list: Traced): readonly Traced[] {
    if (list.elements) return list.elements;
    this.#spend(node, costOf(list.value));
    return isList(list.value) ? list.value.map((value) => ({ value, node: list.node })) : [];
  }

  #withElements(node: Node, traced: Traced): Traced {
    return isList(traced.value) ? { ...traced, elements: this.#elementsOf(node, traced) } : traced;
  }

  #result(at: Node, value: Value, from: readonly Traced[], more?: { readonly [key: string]: Json }): Traced {
    this.#spend(at, costOf(value));
    const { op, start, end, args } = at;
    const children = from.flatMap(({ node }) => (node === undefined ? [] : [node]));
    const name = op === 'call' || op === 'rcall' ? (args as readonly [string, ...unknown[]])[0] : op;
    const place = { rule: this.#rule, start, end, op: name };
    return { value, node: this.#tracer.expression(place, valueForProof(value), children, more) };
  }

  /** Before the work is done: one sub-expression can ask for more than a rule may use. */
  #spend(node: Node, steps: number): void {
    if (steps === 0) return;
    this.#steps += steps;
    const most = this.#budget.mostOfRule;
    if (this.#steps > most)
      throw new TooManySteps('VALIDATION_ERROR', `needs more than ${most} steps; simplify the expression`, {
        rule: this.#rule,
        node,
      });
    this.#budget.spend(this.#rule, steps);
  }

  /** Gives errors of numbers and functions their place in the rule. Limits of the whole computation have none. */
  #guard<T>(node: Node, run: () => T): T {
    try {
      return run();
    } catch (error) {
      if (!(error instanceof CompileError) || error instanceof EvaluationFailure) throw error;
      if (error instanceof BudgetExceeded || error.code === 'PROOF_TOO_LARGE') throw error;
      throw this.#failure(node, error.code, error.message);
    }
  }

  #failure(node: Node, code: CompileErrorCode, message: string): EvaluationFailure {
    this.#spend(node, stepsOfFailure);
    return new EvaluationFailure(code, message, { rule: this.#rule, node });
  }
}

/** `join` repeats its separator. */
const costOfCall = (name: string, values: readonly Value[]): number =>
  values.reduce((sum, value) => sum + costOf(value), 0) +
  (name === 'join' && values[0] !== undefined && values[1] !== undefined && isList(values[0])
    ? values[0].length * costOf(values[1])
    : 0);

function namespaceOf(node: Node, variables: Variables): Namespace | undefined {
  if (node.op !== 'id' || variables.has(node.args)) return undefined;
  return namespaces.find((name) => name === node.args);
}
