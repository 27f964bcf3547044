import { existsSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureInstalled } from './lib/install.ts';
import { describeMachine } from './lib/machine.ts';
import type { Suite } from './lib/suite.ts';

/** A mistake in how the command was called: one message, no stack trace. */
class UsageError extends Error {}

const SUITES = readdirSync(join(import.meta.dirname, 'suites'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

function help(suite?: Suite): string {
  const list = (title: string, items: Suite['workloads']) =>
    [`${title}:`, ...items.map((item) => `  ${item.name.padEnd(25)}${item.summary}`), ''].join('\n');
  return `Usage: npm run bench -- <suite> [options]

Suites: ${SUITES.join(', ')}

Options:
  --quick             one repetition and smaller counts: a look, not a figure to quote
  --only a,b          only these workloads
  --systems a,b       only these systems
  --repetitions N     how often each measurement is repeated (3; 1 with --quick)
  --baseline DIR      another checkout of this repository, with node_modules in place: its engine runs
                      in the same run, taking turns with this one, to compare a change with the code before it
  --json FILE         write the rows {workload, system, value, unit, …} to FILE
  --help              this text; after a suite's name, its workloads and systems

${suite ? `${suite.name}: ${suite.summary}\n\n${list('Workloads', suite.workloads)}\n${list('Systems', suite.systems)}` : ''}${
  suite?.baselineSystems ? `\n${list('Systems with --baseline', suite.baselineSystems)}` : ''
}`;
}

async function load(name: string): Promise<Suite> {
  if (!SUITES.includes(name)) throw new UsageError(`No suite "${name}". There is: ${SUITES.join(', ')}.`);
  const module = (await import(`./suites/${name}/suite.ts`)) as { suite: Suite };
  return module.suite;
}

/** Splits a comma-separated option and refuses names that do not exist. */
function names(option: string, value: string | undefined, known: readonly { name: string }[]) {
  if (value === undefined) return undefined;
  const asked = value.split(',').map((name) => name.trim());
  const unknown = asked.find((name) => !known.some((item) => item.name === name));
  if (unknown !== undefined) {
    throw new UsageError(
      `--${option}: no "${unknown}". There is: ${known.map((item) => item.name).join(', ')}.`,
    );
  }
  return asked;
}

/** The checkout to compare with, or undefined; refuses a folder that has no engine to import. */
function baselineOf(suite: Suite, value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  if (suite.baselineSystems === undefined)
    throw new UsageError(`--baseline: the suite "${suite.name}" has no systems to compare with.`);
  const folder = resolve(value);
  const missing = ['src/index.ts', 'node_modules'].find((path) => !existsSync(join(folder, path)));
  if (missing !== undefined)
    throw new UsageError(
      `--baseline: ${folder} has no ${missing}. Give a checkout of this repository and run npm ci in it.`,
    );
  return folder;
}

function count(value: string | undefined, fallback: number): number {
  const number = value === undefined ? fallback : Number(value);
  if (!Number.isInteger(number) || number < 1)
    throw new UsageError(`--repetitions: "${value}" is not a count.`);
  return number;
}

function read() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        quick: { type: 'boolean', default: false },
        only: { type: 'string' },
        systems: { type: 'string' },
        repetitions: { type: 'string' },
        baseline: { type: 'string' },
        json: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

async function main(): Promise<number> {
  const { values, positionals } = read();
  const [name] = positionals;
  if (name === undefined || values.help) {
    process.stdout.write(help(name === undefined ? undefined : await load(name)));
    return values.help ? 0 : 2;
  }
  const suite = await load(name);
  const baseline = baselineOf(suite, values.baseline);
  const systems = [...suite.systems, ...((baseline !== undefined && suite.baselineSystems) || [])];
  const options = {
    quick: values.quick,
    repetitions: count(values.repetitions, values.quick ? 1 : 3),
    only: names('only', values.only, suite.workloads),
    systems: names('systems', values.systems, systems),
    baseline,
    progress: (line: string) => process.stderr.write(`${line}\n`),
  };
  await ensureInstalled();
  const { rows, tables, failures } = await suite.run(options);
  process.stdout.write(`\n${tables.join('\n\n')}\n\nMachine: ${describeMachine()}\n`);
  if (values.json !== undefined) await writeFile(values.json, `${JSON.stringify(rows, null, 2)}\n`);
  for (const failure of failures) process.stderr.write(`FAILED ${failure}\n`);
  return failures.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\nSee npm run bench -- --help.\n`);
  process.exitCode = 2;
}
