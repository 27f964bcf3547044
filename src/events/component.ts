import type { Component } from '../engine/database/migrate.ts';

/** Owns schema `tallyman_events`. */
export const eventsComponent: Component = {
  name: 'events',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
