import type { Finding } from '../../engine/database/doctor.ts';
import { exitCodes } from './exit.ts';
import type { JsonOption } from './options.ts';
import { show } from './output/print.ts';
import { paintState } from './output/terminal.ts';
import { count, printable } from './output/text.ts';

/** Prints the findings of a check; exit code 5 if something failed. */
export function reportFindings(
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

function line({ check, level, message, advice }: Finding): string {
  const head = `${paintState(level.padEnd(4), level)}  ${check}: ${printable(message)}`;
  return advice === undefined ? head : `${head}\n      → ${printable(advice)}`;
}

function verdict(failed: number, warned: number): string {
  if (failed > 0) return `${count(failed, 'failure')}, ${count(warned, 'warning')}: fix the failures first.`;
  return warned > 0 ? `Fit for work, with ${count(warned, 'warning')}.` : 'Fit for work.';
}
