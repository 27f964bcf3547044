import type { System } from '../system.ts';
import type { SystemName } from './names.ts';

/** Each system is loaded only where it is used, so that no measuring process carries another's code. */
const LOADERS: Record<SystemName, () => Promise<System>> = {
  tallyman: async () => (await import('./tallyman.ts')).tallyman,
  'tallyman-history': async () => (await import('./tallyman.ts')).tallymanHistory,
  graphile: async () => (await import('./graphile.ts')).graphile,
  'graphile-tuned': async () => (await import('./graphile.ts')).graphileTuned,
  'pg-boss': async () => (await import('./pg-boss.ts')).pgBoss,
  'bullmq-everysec': async () => (await import('./bullmq.ts')).bullmqEverysec,
  'bullmq-always': async () => (await import('./bullmq.ts')).bullmqAlways,
  limit: async () => (await import('./limit.ts')).limit,
};

export function systemNamed(name: SystemName): Promise<System> {
  return LOADERS[name]();
}
