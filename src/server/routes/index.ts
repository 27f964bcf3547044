import type { AnyRoute } from '../http/route.ts';
import { accessRoutes } from './access.ts';
import { deadLetterRoutes } from './dead-letters.ts';
import { jobRoutes } from './jobs.ts';
import { labelDesignRoutes } from './label-designs.ts';
import { labelRoutes } from './labels.ts';
import { laneRoutes } from './lanes.ts';
import { queueRoutes } from './queues.ts';
import { rfidRoutes } from './rfid.ts';
import { scheduleRoutes } from './schedules.ts';
import { storeRoutes } from './stores.ts';
import { webhookRoutes } from './webhooks.ts';

export const routes: readonly AnyRoute[] = [
  ...jobRoutes,
  ...laneRoutes,
  ...queueRoutes,
  ...deadLetterRoutes,
  ...scheduleRoutes,
  ...webhookRoutes,
  ...rfidRoutes,
  ...storeRoutes,
  ...labelDesignRoutes,
  ...labelRoutes,
  ...accessRoutes,
];
