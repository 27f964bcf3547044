import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `boundary`: consumers, and what is kept about crossings and objects. Facts are in the engine's log. */
export const boundaryComponent: Component = {
  name: 'boundary',
  folder: new URL('./migrations/', import.meta.url),
};
