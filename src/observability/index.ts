export { Metrics, type MetricsOptions } from './metrics.ts';
