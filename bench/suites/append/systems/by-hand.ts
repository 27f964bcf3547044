/** PostgreSQL as it is used by hand: an id that is unique, an offset, the fact as JSON. Nothing says who wrote when. */

import { Pool } from 'pg';
import type { FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import { Batcher } from '../../../../src/engine/batching/batcher.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { textOf } from '../facts.ts';
import type { RunningSystem, System } from './system.ts';

async function open(
  url: string,
  poolSize: number,
): Promise<{ database: Database } & Omit<RunningSystem, 'append'>> {
  const database = await Database.connect({ url, poolSize });
  await database.query(
    `create table facts ("offset" bigint generated always as identity primary key,
                         message_id text collate "C" not null unique, fact json not null)`,
  );
  await database.warm(poolSize);
  return {
    database,
    async count() {
      const { rows } = await database.query<{ count: number }>('select count(*)::int as count from facts');
      return rows[0]?.count ?? 0;
    },
    stop: () => database.close(),
  };
}

const insertOne = {
  name: 'insert_one',
  text: 'insert into facts (message_id, fact) values ($1, $2) on conflict do nothing returning "offset"',
};

export const insert: System = async ({ url, size }) => {
  const { database: _, ...rest } = await open(url, 2);
  const pool = new Pool({ connectionString: url, max: Math.min(size.callers, 32) });
  return {
    count: rest.count,
    append: (fact) => pool.query({ ...insertOne, values: [fact.messageId, textOf(fact)] }),
    async stop() {
      await pool.end();
      await rest.stop();
    },
  };
};

const insertMany = {
  name: 'insert_many',
  text: `insert into facts (message_id, fact) select unnest($1::text[]), unnest($2::json[])
         on conflict do nothing returning "offset"`,
};

export const groupCommit: System = async ({ url }) => {
  const { database, ...rest } = await open(url, 4);
  const batcher = new Batcher<FactInput, number>({
    maxBatch: 1000,
    // Offsets are in commit order only as long as there is one writer.
    maxInFlight: 1,
    async send(facts) {
      const rows = await database.run(insertMany, [facts.map((fact) => fact.messageId), facts.map(textOf)]);
      return rows.map(([offset]) => Number(offset));
    },
  });
  return { ...rest, append: (fact) => batcher.add(fact) };
};
