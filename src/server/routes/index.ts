import { type App, accessOf, type RouteHost } from '../../host/app.ts';
import type { AnyRoute } from '../../host/route.ts';
import { accessRoutes } from './access.ts';
import { deadLetterRoutes } from './dead-letters.ts';
import { eventRoutes } from './events.ts';
import { jobRoutes } from './jobs.ts';
import { laneRoutes } from './lanes.ts';
import { queueRoutes } from './queues.ts';
import { scheduleRoutes } from './schedules.ts';
import { subjectRoutes } from './subjects.ts';

/** Every route that needs a key: those of the engine and the server, and those of each app. */
export async function routesOf(apps: readonly App[], host: RouteHost): Promise<readonly AnyRoute[]> {
  const fromApps = await Promise.all(apps.map((app) => app.routes?.(host) ?? []));
  return [...coreRoutes(apps), ...fromApps.flat()];
}

const coreRoutes = (apps: readonly App[]): readonly AnyRoute[] => [
  ...jobRoutes,
  ...laneRoutes,
  ...queueRoutes,
  ...deadLetterRoutes,
  ...scheduleRoutes,
  ...eventRoutes,
  ...subjectRoutes(apps),
  ...accessRoutes(accessOf(apps).map(({ name }) => name)),
];
