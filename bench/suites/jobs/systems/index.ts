import type { System } from '../system.ts';
import type { SystemName } from './names.ts';

/** Each system is loaded only where it is used, so that no measuring process carries another's code. */
const LOADERS: Record<SystemName, (baseline: string | undefined) => Promise<System>> = {
  tallyman: async () => (await import('./tallyman.ts')).tallyman,
  'tallyman-history': async () => (await import('./tallyman.ts')).tallymanHistory,
  'tallyman-before': async (baseline) => (await import('./tallyman.ts')).tallymanOf(baseline, 'zero'),
  'tallyman-before-history': async (baseline) =>
    (await import('./tallyman.ts')).tallymanOf(baseline, 'default'),
  'tallyman-statement': async () => (await import('./tallyman.ts')).tallymanStatement,
  'tallyman-plain': async () => (await import('./tallyman.ts')).tallymanPlain,
  graphile: async () => (await import('./graphile.ts')).graphile,
  'graphile-tuned': async () => (await import('./graphile.ts')).graphileTuned,
  'pg-boss': async () => (await import('./pg-boss.ts')).pgBoss,
  'pg-boss-atomic': async () => (await import('./pg-boss.ts')).pgBossAtomic,
  'bullmq-everysec': async () => (await import('./bullmq.ts')).bullmqEverysec,
  'bullmq-always': async () => (await import('./bullmq.ts')).bullmqAlways,
  limit: async () => (await import('./limit.ts')).limit,
};

/** `baseline` is the checkout that the systems `tallyman-before…` import. */
export function systemNamed(name: SystemName, baseline: string | undefined): Promise<System> {
  return LOADERS[name](baseline);
}
