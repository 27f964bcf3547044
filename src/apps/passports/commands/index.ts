import type { Command } from 'commander';
import { group } from '../../../host/cli/options.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { addVerify } from '../verify-command.ts';
import { addAudit } from './audit.ts';
import { addCompile } from './compile.ts';
import { addDocuments } from './documents.ts';
import { addExport } from './export.ts';
import { addExports } from './exports.ts';
import { addProducts } from './products.ts';
import { addRules } from './rules.ts';
import { addShow } from './show.ts';
import { addVersions } from './versions.ts';

/** Each file of this folder adds some commands. Add yours here. */
const parts: readonly ((passports: Command, frame: CommandFrame) => void)[] = [
  addProducts,
  addDocuments,
  addRules,
  addCompile,
  addShow,
  addAudit,
  addVersions,
  addExport,
  addExports,
];

export function addPassports(program: Command, frame: CommandFrame): void {
  const passports = group(program, 'passports', 'battery passports: documents in, signed passports out');
  for (const add of parts) add(passports, frame);
  addVerify(program);
}
