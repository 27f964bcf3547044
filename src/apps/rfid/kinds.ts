import type { AnyKind } from '../../engine/jobs/kind.ts';
import { processRead } from './failed-reads.ts';
import type { TagReadProcessor } from './process.ts';
import { type CameraReadOptions, reconcileCameraRead } from './shipments/camera-reads.ts';
import { importPlates, type PlateImport } from './wms/import.ts';

export interface RfidKindsOptions {
  readonly processor: TagReadProcessor;
  readonly cameraReads?: CameraReadOptions;
  /** Set if a warehouse system is configured. */
  readonly plates?: PlateImport;
}

/** Everything that a worker needs to run the jobs of this part. */
export const rfidKinds = ({ processor, cameraReads, plates }: RfidKindsOptions): readonly AnyKind[] => [
  processRead(processor),
  reconcileCameraRead(cameraReads),
  ...(plates ? [importPlates(plates)] : []),
];
