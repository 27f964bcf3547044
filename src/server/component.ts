import type { Component } from '../engine/database/migrate.ts';

export const serverComponent: Component = {
  name: 'server',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
