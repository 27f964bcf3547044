export { type CameraRead, storeCameraReads } from './camera-reads.ts';
export { iotComponent } from './component.ts';
export { iotKeys } from './config.ts';
export {
  type DeviceEvent,
  listDeviceEvents,
  type StoredDeviceEvent,
  storeDeviceEvents,
} from './device-events.ts';
export { type Clock, DeviceWatch } from './device-watch.ts';
export { configuredSubscriptions, mqttSettingsOf } from './mqtt-settings.ts';
export {
  type Device,
  type DeviceRole,
  type DeviceSettings,
  deviceRoles,
  type Location,
  listDevices,
  listLocations,
  putDevice,
  putLocation,
  requireLocation,
} from './places.ts';
export {
  defaultTenant,
  type Origin,
  originOf,
  type Subscription,
  type SubscriptionSetting,
  subscriptionsOf,
} from './subscriptions.ts';
export { type RawTagRead, storeTagReads } from './tag-reads.ts';
export { deviceOfTopic, parseZebraReads, type RejectedItem, type ZebraReads } from './zebra.ts';
export { parseZebraEvents, type ZebraEvents } from './zebra-events.ts';
