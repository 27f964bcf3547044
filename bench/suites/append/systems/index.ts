import { groupCommit, insert } from './by-hand.ts';
import { file } from './file.ts';
import { jetstream, jetstreamBatched, jetstreamDefault } from './jetstream.ts';
import type { SystemName } from './names.ts';
import { tallymanBatched, tallymanSingle } from './network.ts';
import type { System } from './system.ts';
import { tallyman } from './tallyman.ts';

export const systems: Readonly<Record<SystemName, System>> = {
  tallyman,
  'tallyman-single': tallymanSingle,
  'tallyman-batched': tallymanBatched,
  jetstream,
  'jetstream-batched': jetstreamBatched,
  'jetstream-default': jetstreamDefault,
  insert,
  'group-commit': groupCommit,
  file,
};
