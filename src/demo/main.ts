import { Command, CommanderError, InvalidArgumentError } from 'commander';
import { exitCodes, explain } from '../cli/exit.ts';
import { wholeNumber } from '../cli/options.ts';
import { complain, print } from '../cli/output/print.ts';
import { type DemoOptions, runDemo } from './demo.ts';

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

function durationMs(text: string): number {
  const [, amount, unit = 's'] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text) ?? [];
  const ms = Number(amount) * (units[unit] ?? 0);
  if (!(ms > 0) || ms > 2 ** 31 - 1) throw new InvalidArgumentError('Expected a time such as 30s, 5m or 1h.');
  return ms;
}

for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

const program = new Command('npm start --')
  .description(
    'A plant that keeps working, on the embedded PostgreSQL or on DATABASE_URL, with its books open.',
  )
  .option('--headless', 'plain lines, also on a terminal')
  .option(
    '--for <time>',
    'stop after this time (30s, 5m), finish what is there, and check the books',
    durationMs,
  )
  .option('--rate <count>', 'jobs enqueued a second', wholeNumber(1, 20_000), 50)
  .option(
    '--seed <number>',
    'the same seed makes the same work and the same trouble',
    wholeNumber(0, 2 ** 32 - 1),
  )
  .addHelpText(
    'after',
    '\nExit codes: 0 stopped with balanced books, 1 they do not balance, 2 wrong usage, 4 no database.',
  )
  .exitOverride()
  .showHelpAfterError('(--help shows how it is used)');

async function main(): Promise<number> {
  try {
    program.parse();
    const { summary, balanced } = await runDemo(program.opts<DemoOptions>());
    print(summary);
    return balanced ? exitCodes.ok : exitCodes.failed;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    const { message, exitCode } = explain(error);
    complain(`error: ${message}`);
    if (process.env.TALLYMAN_DEBUG === '1' && error instanceof Error) complain(String(error.stack));
    return exitCode;
  }
}

process.exit(await main());
