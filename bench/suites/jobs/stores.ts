import { type PostgresServer, usingDatabase } from '../../lib/postgres.ts';
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

async function usingRedis<T>(durability: Durability, use: (url: string) => Promise<T>): Promise<T> {
  const redis = await startRedis(durability);
  try {
    return await use(redis.url);
  } finally {
    await redis.stop();
  }
}
