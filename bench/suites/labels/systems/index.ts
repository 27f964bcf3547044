import type { SystemName } from './names.ts';
import { push } from './push.ts';
import { render } from './render.ts';
import type { System } from './system.ts';
import { tallyman } from './tallyman.ts';

export const systems: Readonly<Record<SystemName, System>> = { tallyman, render, push };
