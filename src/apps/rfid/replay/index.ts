export type { ReplayCounts, ReplayProgress } from './counts.ts';
export {
  type FollowOptions,
  Replay,
  type ReplayObserver,
  type ReplayOptions,
  type ReplayRequest,
} from './replay.ts';
export { type SourceDevice, TagReadSource, type TagReadTable } from './source.ts';
