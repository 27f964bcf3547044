export { registerDoors } from './doors.ts';
export {
  type IntakeCounts,
  type IntakeOptions,
  type IntakeStatus,
  type RunningIntake,
  readsTopic,
  startIntake,
} from './intake.ts';
export { type UnreadableMessage, unreadableKind } from './unreadable.ts';
