import type { Command } from 'commander';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { addBundles } from './bundles.ts';
import { addConsumers } from './consumers.ts';
import { addEpochs } from './epochs.ts';
import { addFactReads } from './fact-reads.ts';
import { addFacts } from './facts.ts';
import { addObjects } from './objects.ts';
import { addPair } from './pair.ts';
import { addQuarantine } from './quarantine.ts';
import { addReconcile } from './reconcile.ts';
import { addRefusedEvents } from './refused-events.ts';
import { addSendAgain } from './send-again.ts';
import { addZones } from './zones.ts';

/** Each file of this folder adds some commands. Add yours here. */
const parts: readonly ((program: Command, frame: CommandFrame) => void)[] = [
  addFacts,
  addFactReads,
  addObjects,
  addZones,
  addPair,
  addConsumers,
  addBundles,
  addQuarantine,
  addRefusedEvents,
  addReconcile,
  addEpochs,
  addSendAgain,
];

export function addBoundary(program: Command, frame: CommandFrame): void {
  for (const add of parts) add(program, frame);
}
