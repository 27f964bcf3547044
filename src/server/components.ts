import { iotComponent } from '../apps/iot/component.ts';
import { labelsComponent } from '../apps/labels/component.ts';
import { rfidComponent } from '../apps/rfid/component.ts';
import { webhooksComponent } from '../apps/webhooks/component.ts';
import type { Component } from '../engine/database/migrate.ts';
import { eventsComponent } from '../events/component.ts';
import { serverComponent } from './component.ts';

/** Everything beside the engine that has tables of its own. */
export const components: readonly Component[] = [
  eventsComponent,
  serverComponent,
  webhooksComponent,
  iotComponent,
  rfidComponent,
  labelsComponent,
];
