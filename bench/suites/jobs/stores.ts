import { randomUUID } from 'node:crypto';
import { type PostgresServer, withClient } from '../../lib/postgres.ts';
import { type Durability, startRedis } from '../../lib/redis.ts';
import type { Store } from './system.ts';

/** Hands out stores: a new, empty one for every run, gone after it. */
export interface Stores {
  /** Why there is no such store on this machine; undefined where there is. */
  lacks(store: Store): string | undefined;
  using<T>(store: Store, use: (url: string) => Promise<T>): Promise<T>;
}

export function stores(server: PostgresServer, hasRedis: boolean): Stores {
  return {
    lacks: (store) => (store !== 'postgres' && !hasRedis ? 'no redis-server on this machine' : undefined),
    using(store, use) {
      if (store === 'postgres') return usingDatabase(server, use);
      return usingRedis(store === 'redis-always' ? 'always' : 'everysec', use);
    },
  };
}

async function usingDatabase<T>(server: PostgresServer, use: (url: string) => Promise<T>): Promise<T> {
  const name = `bench_${randomUUID().replaceAll('-', '')}`;
  const administer = (statement: string) =>
    withClient(server.url('postgres'), (client) => client.query(statement));
  await administer(`create database ${name}`);
  try {
    return await use(server.url(name));
  } finally {
    await administer(`drop database ${name} with (force)`);
  }
}

async function usingRedis<T>(durability: Durability, use: (url: string) => Promise<T>): Promise<T> {
  const redis = await startRedis(durability);
  try {
    return await use(redis.url);
  } finally {
    await redis.stop();
  }
}
