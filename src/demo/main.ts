import { Command, CommanderError } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import { apps } from '../host/apps.ts';
import { durationMs } from '../host/cli/duration.ts';
import { exitCodes, explain } from '../host/cli/exit.ts';
import { complain, print } from '../host/cli/output/print.ts';
import type { Demo } from '../host/demo.ts';
import { type DemoOptions, runDemo } from './demo.ts';

for (const stream of [process.stdout, process.stderr])
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

/** The first app in the list that has one. */
async function findDemo(): Promise<Demo> {
  for (const { demo } of apps) if (demo) return demo();
  throw new TallymanError('NOT_FOUND', 'no app has a demo');
}

function programOf(demo: Demo): Command {
  const program = new Command('npm start --')
    .description(
      `${demo.description}, on the embedded PostgreSQL or on DATABASE_URL, with open books. The broker is MQTT_URL, else a Mosquitto of its own.`,
    )
    .option('--headless', 'plain lines, also on a terminal')
    .option(
      '--for <time>',
      'stop after this time (30s, 5m), finish what is under way, and check the books',
      durationMs,
    )
    .addHelpText(
      'after',
      '\nExit codes: 0 stopped with balanced books, 1 they do not balance or there is no broker, 2 wrong usage, 4 no database.',
    )
    .exitOverride()
    .showHelpAfterError('(--help shows how it is used)');
  demo.options(program);
  return program;
}

async function main(): Promise<number> {
  try {
    const demo = await findDemo();
    const program = programOf(demo).parse();
    const { summary, balanced } = await runDemo(demo, program.opts<DemoOptions>());
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
