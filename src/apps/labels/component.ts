import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `labels`: stores, products, templates, labels and what they show. */
export const labelsComponent: Component = {
  name: 'labels',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
