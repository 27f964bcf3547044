import { labelDesignRoutes } from '../../apps/labels/routes/designs.ts';
import { labelRoutes } from '../../apps/labels/routes/labels.ts';
import { storeRoutes } from '../../apps/labels/routes/stores.ts';
import { rfidRoutes } from '../../apps/rfid/routes.ts';
import { webhookRoutes } from '../../apps/webhooks/routes.ts';
import type { AnyRoute } from '../../host/route.ts';
import { accessRoutes } from './access.ts';
import { deadLetterRoutes } from './dead-letters.ts';
import { eventRoutes } from './events.ts';
import { jobRoutes } from './jobs.ts';
import { laneRoutes } from './lanes.ts';
import { queueRoutes } from './queues.ts';
import { scheduleRoutes } from './schedules.ts';

export const routes: readonly AnyRoute[] = [
  ...jobRoutes,
  ...laneRoutes,
  ...queueRoutes,
  ...deadLetterRoutes,
  ...scheduleRoutes,
  ...eventRoutes,
  ...webhookRoutes,
  ...rfidRoutes,
  ...storeRoutes,
  ...labelDesignRoutes,
  ...labelRoutes,
  ...accessRoutes,
];
