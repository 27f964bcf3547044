import type { Component } from '../../engine/database/migrate.ts';

/** Owns schema `passports`: documents, facts, snapshots, rules, passports, their versions and the audit trail. */
export const passportsComponent: Component = {
  name: 'passports',
  folder: new URL('./migrations/', import.meta.url),
  functions: new URL('./functions/', import.meta.url),
};
