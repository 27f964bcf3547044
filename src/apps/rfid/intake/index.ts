export { registerDoors } from './doors.ts';
export {
  type IntakeOptions,
  type IntakeStatus,
  type RunningIntake,
  readsTopic,
  startIntake,
} from './intake.ts';
export { PlantMetrics, type PlantObserver } from './metrics.ts';
export type { IntakeCounts } from './take-in.ts';
export { type UnreadableMessage, unreadableKind } from './unreadable.ts';
export { plateImport, type ReadRetention, type UpkeepOptions } from './upkeep.ts';
