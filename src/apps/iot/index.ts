export { type CameraRead, storeCameraReads } from './camera-reads.ts';
export { iotComponent } from './component.ts';
export { iotKeys } from './config.ts';
export { mqttSettingsOf } from './mqtt-settings.ts';
export {
  type Device,
  type DeviceSettings,
  type Location,
  listDevices,
  listLocations,
  putDevice,
  putLocation,
} from './places.ts';
export { type RawTagRead, storeTagReads } from './tag-reads.ts';
export { deviceOfTopic, parseZebraReads, type RejectedItem, type ZebraReads } from './zebra.ts';
