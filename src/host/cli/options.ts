import { type Command, InvalidArgumentError } from 'commander';
import type { TallymanError } from '../../engine/errors.ts';
import { maxPageLimit, type Page } from '../../engine/paging.ts';
import { usage } from './exit.ts';

export const examples = (lines: readonly string[]): string =>
  `\nExamples:\n${lines.map((line) => `  $ tallyman ${line}`).join('\n')}`;

/** A group such as `jobs`: without a command of its own it shows its help. Several parts may add commands to one. */
export function group(program: Command, name: string, description: string): Command {
  const known = program.commands.find((command) => command.name() === name);
  return known ?? program.command(name).description(description);
}

export interface JsonOption {
  readonly json?: boolean;
}

export const withJson = (command: Command): Command =>
  command.option('--json', 'one JSON document on stdout, for scripts');

export interface PageOptions extends JsonOption {
  readonly limit: number;
  readonly cursor?: string;
}

export const withPage = (command: Command): Command =>
  withJson(
    command
      .option('-n, --limit <count>', 'how many at most', wholeNumber(1, 100_000), 50)
      .option('--cursor <cursor>', 'go on where the last page ended (its next_cursor)'),
  );

type Parse = (text: string, previous: never) => unknown;
const accumulating = new WeakSet<Parse>();

/** Marks an option that may be given several times: its function gets what the earlier ones made. */
export function repeatable<F extends Parse>(parse: F): F {
  accumulating.add(parse);
  return parse;
}

/** `a,b`, or given several times, or both. */
export const list = repeatable((text: string, previous: readonly string[] = []): readonly string[] => [
  ...previous,
  ...text.split(',').map((part) => part.trim()),
]);

/** Refuses an option with a value that is given twice, where the first value would be dropped without a word. */
export function refuseRepeated(command: Command): void {
  for (const option of command.options) {
    const takesValue = option.required || option.optional;
    if (!takesValue || option.variadic || (option.parseArg && accumulating.has(option.parseArg as Parse)))
      continue;
    let isGiven = false;
    command.on(`option:${option.name()}`, () => {
      if (isGiven)
        command.error(`error: option '${option.flags}' is given twice; it takes one value`, {
          code: 'tallyman.repeatedOption',
        });
      isGiven = true;
    });
  }
  for (const child of command.commands) refuseRepeated(child);
}

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = Number(text);
    if (!/^\d+$/.test(text) || number < min || number > max)
      throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`);
    return number;
  };
}

export function share(text: string): number {
  const value = Number(text);
  if (!/^\d*\.?\d+$/.test(text) || !(value <= 1))
    throw new InvalidArgumentError('Expected a share from 0 to 1, such as 0.05.');
  return value;
}

export function oneOf<T extends string>(choices: readonly T[]): (text: string) => T {
  return (text) => {
    const wanted = text.toLowerCase().replaceAll('-', '_');
    const found = choices.find((choice) => choice.toLowerCase() === wanted);
    if (found === undefined) throw new InvalidArgumentError(`Expected one of ${choices.join(', ')}.`);
    return found;
  };
}

/** The library returns bounded pages; a user may ask for more. */
export async function collect<T>(
  options: PageOptions,
  list: (page: { limit: number; cursor?: string }) => Promise<Page<T>>,
): Promise<{ items: T[]; nextCursor: string | null }> {
  const items: T[] = [];
  let cursor = options.cursor;
  for (;;) {
    const limit = Math.min(maxPageLimit, options.limit - items.length);
    const page = await list({ limit, ...(cursor !== undefined && { cursor }) });
    items.push(...page.items);
    if (page.nextCursor === null || items.length >= options.limit)
      return { items, nextCursor: page.nextCursor };
    cursor = page.nextCursor;
  }
}

export const noCursor = (text: string): TallymanError =>
  usage(`--cursor takes the next_cursor of a page of this list, got ${JSON.stringify(text)}`);

/** The line below a list that has more pages. */
export const more = (cursor: string | null): string =>
  cursor === null ? '' : `\n(there are more: ask with --limit, or go on with --cursor ${cursor})`;
