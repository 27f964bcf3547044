import { availableParallelism } from 'node:os';
import { codes } from './codes.ts';
import { compileAlone } from './compile.ts';
import type { SystemName } from './names.ts';
import type { System } from './system.ts';
import { tallymanWith } from './tallyman.ts';

export const systems: Readonly<Record<SystemName, System>> = {
  tallyman: tallymanWith(availableParallelism()),
  'tallyman-1': tallymanWith(1),
  compile: compileAlone,
  codes,
};
