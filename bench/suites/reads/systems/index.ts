import { copy } from './copy.ts';
import { handWritten } from './hand-written.ts';
import { brokerOnly, tallymanMqtt } from './mqtt.ts';
import type { SystemName } from './names.ts';
import type { System } from './system.ts';
import { tallyman } from './tallyman.ts';

export const systems: Readonly<Record<SystemName, System>> = {
  'hand-written': handWritten(1),
  'hand-written-8': handWritten(8),
  tallyman,
  'tallyman-mqtt': tallymanMqtt,
  broker: brokerOnly,
  copy,
};
