export {
  type FollowOptions,
  Replay,
  type ReplayCounts,
  type ReplayOptions,
  type ReplayProgress,
  type ReplayRequest,
} from './replay.ts';
export { type SourceDevice, TagReadSource, type TagReadTable } from './source.ts';
