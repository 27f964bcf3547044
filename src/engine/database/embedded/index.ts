export type { EmbeddedOptions, EmbeddedPostgres } from './embedded.ts';
export { startEmbedded } from './embedded.ts';
