export { rfidComponent } from './component.ts';
export { contentHash, hashToBase64 } from './content-hash.ts';
export { decodeEpc, type Epc } from './epc.ts';
export {
  type EpcisNames,
  epcisContentType,
  epcisDocument,
  type MovementRange,
  readMovements,
  toObjectEvent,
} from './epcis.ts';
export type { ExaminedBatch } from './examined-batch.ts';
export { processRead, retryAsJobs } from './failed-reads.ts';
export * from './intake/index.ts';
export { type RfidKindsOptions, rfidKinds } from './kinds.ts';
export { deviceLockId, lockIds } from './lock-ids.ts';
export { type MovementOptions, TagReadProcessor, type TagReadProcessorOptions } from './process.ts';
export { CachedDevices, type CachedDevicesOptions } from './reference/cached-devices.ts';
export { ChangeNotices } from './reference/change-notices.ts';
export type { Device, DeviceDirectory } from './reference/devices.ts';
export * from './replay/index.ts';
export * from './shipments/index.ts';
export type { FailedRead, ProcessorType, ReadResult, SkipReason, TagRead } from './tag-read.ts';
export * from './wms/index.ts';
