export { rfidComponent } from './component.ts';
export { contentHash, hashToBase64 } from './content-hash.ts';
export { decodeEpc, type Epc } from './epc.ts';
export { processRead, retryAsJobs } from './failed-reads.ts';
export { type ExaminedBatch, TagReadProcessor, type TagReadProcessorOptions } from './process.ts';
export { CachedDevices, type CachedDevicesOptions } from './reference/cached-devices.ts';
export { ChangeNotices } from './reference/change-notices.ts';
export type { Device, DeviceDirectory } from './reference/devices.ts';
export type { FailedRead, ProcessorType, ReadResult, SkipReason, TagRead } from './tag-read.ts';
