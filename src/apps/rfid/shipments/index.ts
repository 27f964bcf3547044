export { type CameraReadOptions, reconcileCameraRead, type SeenPlate } from './camera-reads.ts';
export { type LifecycleOptions, ShipmentLifecycle } from './lifecycle.ts';
export { type OutboundPlate, planShipments } from './plan.ts';
export type { ShipmentStatus } from './reconcile.ts';
export { returnDoorRole } from './return-door.ts';
export { listShipments, requireShipment, type Shipment, type ShipmentLine } from './shipments.ts';
