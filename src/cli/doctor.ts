import type { Command } from 'commander';
import { mqttSettingsOf } from '../apps/iot/mqtt-settings.ts';
import { loadConfig } from '../config/load.ts';
import { Database } from '../engine/database/database.ts';
import { examine, type Finding } from '../engine/database/doctor.ts';
import { requireMigrated } from '../engine/database/migrate.ts';
import { isOutOfStep } from '../engine/database/migration-errors.ts';
import { examineJobs } from '../engine/jobs/check.ts';
import { reachDatabase } from '../host/process/database.ts';
import { withResetAdvice } from '../host/process/reset-advice.ts';
import { exitCodes, explain, usage } from './exit.ts';
import { examples, type JsonOption, wholeNumber, withJson } from './options.ts';
import { show } from './output/print.ts';
import { paintState } from './output/terminal.ts';
import { count, printable } from './output/text.ts';
import { commandLogger } from './session.ts';

export function addDoctor(program: Command): void {
  const doctor = withJson(program.command('doctor'))
    .description('check versions, connection, pooler, clock, and settings that cost safety')
    .addHelpText(
      'after',
      `${examples(['doctor', 'doctor --json'])}\n\nExit code 5 where a check fails; warnings are not failures.`,
    )
    .action(async (options: JsonOption) => {
      const { where, findings } = await checkUp();
      report(options, { database: where }, findings);
    });

  doctor
    .command('jobs')
    .description(
      'find work that can never move: jobs and lanes that no worker would reach, claims of workers that are gone',
    )
    .addHelpText(
      'after',
      `${examples(['doctor jobs', 'doctor jobs --json'])}\n\nExit code 5 where it finds any.`,
    )
    .action(async (_options: unknown, command: Command) => {
      const { where, findings } = await checkUp(async (database) => {
        await requireMigrated(database);
        return examineJobs(database);
      });
      report(command.optsWithGlobals(), { database: where }, findings);
    });

  doctor
    .command('mqtt')
    .description(
      'prove that intake from the MQTT broker loses nothing: settings, session, probes that arrive once',
    )
    .option('--probe-topic <topic>', 'probes go to a topic below it', 'tallyman/doctor')
    .option('--probes <count>', 'how many; 0 sends none', wholeNumber(0, 10_000), 20)
    .option(
      '--former-instance <id...>',
      'instance ids no longer in use: does a session of theirs still hoard messages?',
    )
    .addHelpText('after', examples(['doctor mqtt', 'doctor mqtt --former-instance intake-3 --json']))
    .action(
      async (
        options: { probeTopic: string; probes: number; formerInstance?: string[] },
        command: Command,
      ) => {
        const settings = mqttSettingsOf(loadConfig());
        if (!settings)
          throw usage('mqtt.brokerHost (MQTT_BROKER_HOST) is not set: there is no broker to examine');
        const { doctorMqtt } = await import('../apps/iot/mqtt/doctor.ts');
        const { probeTopic, probes, formerInstance: formerInstances = [] } = options;
        const findings = await doctorMqtt({ settings, probeTopic, probes, formerInstances });
        // `doctor` itself takes --json, too, and hears it first.
        report(
          command.optsWithGlobals(),
          { broker: `${settings.brokerHost}:${settings.brokerPort}` },
          findings,
        );
      },
    );
}

function report(
  options: JsonOption,
  what: Readonly<Record<string, string>>,
  findings: readonly Finding[],
): void {
  const failed = findings.filter(({ level }) => level === 'fail').length;
  const warned = findings.filter(({ level }) => level === 'warn').length;
  show(options.json, { ...what, healthy: failed === 0, findings }, () =>
    [
      ...Object.entries(what).map(([name, where]) => `${name[0]?.toUpperCase()}${name.slice(1)}: ${where}`),
      '',
      ...findings.map(line),
      '',
      verdict(failed, warned),
    ].join('\n'),
  );
  if (failed > 0) process.exitCode = exitCodes.unhealthy;
}

const isNotMigrated = (error: unknown): boolean => (error as { code?: string }).code === 'NOT_MIGRATED';

/** A database that cannot be reached is a finding too, and the one a person calls the doctor for. */
async function checkUp(
  look: (database: Database) => Promise<readonly Finding[]> = examine,
): Promise<{ where: string; findings: readonly Finding[] }> {
  const config = loadConfig();
  const logger = commandLogger();
  const reached = await reachDatabase(config, { logger });
  try {
    const database = await Database.connect({
      url: reached.url,
      poolSize: config['database.poolSize'],
      logger,
      applicationName: 'tallyman doctor',
    });
    const findings = await look(database).finally(() => database.close());
    return { where: reached.where, findings };
  } catch (error) {
    return {
      where: reached.where,
      findings: [
        {
          check: isNotMigrated(error) || isOutOfStep(error) ? 'migrations' : 'connection',
          level: 'fail',
          message: explain(withResetAdvice(error, reached)).message,
        },
      ],
    };
  } finally {
    await reached.close();
  }
}

function line({ check, level, message, advice }: Finding): string {
  const head = `${paintState(level.padEnd(4), level)}  ${check}: ${printable(message)}`;
  return advice === undefined ? head : `${head}\n      → ${printable(advice)}`;
}

function verdict(failed: number, warned: number): string {
  if (failed > 0) return `${count(failed, 'failure')}, ${count(warned, 'warning')}: fix the failures first.`;
  return warned > 0 ? `Fit for work, with ${count(warned, 'warning')}.` : 'Fit for work.';
}
