import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `tallyman_webhooks`. */
export const webhooksComponent: Component = {
  name: 'webhooks',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
