import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `rfid`: baskets and their movements. Reads `iot`, never writes to it. */
export const rfidComponent: Component = {
  name: 'rfid',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
