import type { Command } from 'commander';
import { loadConfig } from '../config/load.ts';
import { Database } from '../engine/database/database.ts';
import { examine, type Finding } from '../engine/database/doctor.ts';
import { reachDatabase } from '../runtime/database.ts';
import { exitCodes, explain } from './exit.ts';
import { examples, type JsonOption, withJson } from './options.ts';
import { show } from './output/print.ts';
import { paintState } from './output/terminal.ts';
import { count, printable } from './output/text.ts';
import { commandLogger } from './session.ts';

export function addDoctor(program: Command): void {
  withJson(program.command('doctor'))
    .description('check versions, connection, pooler, clock, and settings that cost safety')
    .addHelpText(
      'after',
      `${examples(['doctor', 'doctor --json'])}\n\nExit code 5 where a check fails; warnings are not failures.`,
    )
    .action(async (options: JsonOption) => {
      const { where, findings } = await checkUp();
      const failed = findings.filter(({ level }) => level === 'fail').length;
      const warned = findings.filter(({ level }) => level === 'warn').length;
      show(options.json, { database: where, healthy: failed === 0, findings }, () =>
        [`Database: ${where}`, '', ...findings.map(line), '', verdict(failed, warned)].join('\n'),
      );
      if (failed > 0) process.exitCode = exitCodes.unhealthy;
    });
}

/** A database that cannot be reached is a finding too, and the one a person calls the doctor for. */
async function checkUp(): Promise<{ where: string; findings: readonly Finding[] }> {
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
    const findings = await examine(database).finally(() => database.close());
    return { where: reached.where, findings };
  } catch (error) {
    return {
      where: reached.where,
      findings: [{ check: 'connection', level: 'fail', message: explain(error).message }],
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
  if (failed > 0) return `${count(failed, 'failure')}, ${count(warned, 'warning')}: mend the failures first.`;
  return warned > 0 ? `Fit for work, with ${count(warned, 'warning')}.` : 'Fit for work.';
}
