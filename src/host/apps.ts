import { boundaryApp } from '../apps/boundary/app.ts';
import { iotApp } from '../apps/iot/app.ts';
import { labelsApp } from '../apps/labels/app.ts';
import { passportsApp } from '../apps/passports/app.ts';
import { rfidApp } from '../apps/rfid/app.ts';
import { webhooksApp } from '../apps/webhooks/app.ts';
import type { App } from './app.ts';

/** All apps, each after those that it depends on. A new app is a folder and a line here. */
export const apps: readonly App[] = [webhooksApp, iotApp, rfidApp, labelsApp, passportsApp, boundaryApp];
