import type { AnyRoute } from '../../../host/route.ts';
import { labelDesignRoutes } from './designs.ts';
import { labelRoutes } from './labels.ts';
import { storeRoutes } from './stores.ts';

export const labelsRoutes: readonly AnyRoute[] = [...storeRoutes, ...labelDesignRoutes, ...labelRoutes];
