import { Command, CommanderError } from 'commander';
import { durationMs } from '../host/cli/duration.ts';
import { exitCodes, explain } from '../host/cli/exit.ts';
import { wholeNumber } from '../host/cli/options.ts';
import { complain, print } from '../host/cli/output/print.ts';
import { type DemoOptions, runDemo } from './demo.ts';

for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

const program = new Command('npm start --')
  .description(
    'Dock doors that read baskets, on the embedded PostgreSQL or on DATABASE_URL, with open books. The broker is MQTT_URL, ' +
      'else a Mosquitto of its own.',
  )
  .option('--headless', 'plain lines, also on a terminal')
  .option(
    '--for <time>',
    'stop after this time (30s, 5m), finish what is under way, and check the books',
    durationMs,
  )
  .option('--chaos', 'kill and restart the processor all the time')
  .option('--rate <count>', 'reads a second', wholeNumber(1, 20_000), 100)
  .option('--doors <count>', 'dock doors', wholeNumber(1, 1000), 6)
  .option('--baskets <count>', 'baskets that pass them', wholeNumber(2, 100_000), 60)
  .option(
    '--seed <number>',
    'the same seed makes the same reads and the same trouble',
    wholeNumber(0, 2 ** 32 - 1),
  )
  .addHelpText(
    'after',
    '\nExit codes: 0 stopped with balanced books, 1 they do not balance or there is no broker, 2 wrong usage, 4 no database.',
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
