import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `iot`: devices, and their raw messages. */
export const iotComponent: Component = {
  name: 'iot',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
