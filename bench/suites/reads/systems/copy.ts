/** The limit: the rows that processTagReads wrote, through COPY into the same tables with the same indexes. */
import type { Connection, Submittable } from 'pg';
import type { System } from './system.ts';
import { tallyman } from './tallyman.ts';

const TABLES = ['rfid.baskets', 'rfid.movements', 'rfid.tag_read_processings'];
const kept = new Map<string, Buffer>();

export const copy: System = {
  connections: 4,
  async prepare(database, size) {
    await tallyman.run(database, size, () => {});
    for (const table of TABLES) {
      const { rows } = await database.query<{ line: string }>(
        `select replace(array_to_string(array(select coalesce(replace(v, '\\', '\\\\'), '\\N')
                  from jsonb_each_text(to_jsonb(t)) with ordinality e (k, v, n)
                  order by array_position(c.names, k)), E'\\t'), E'\\n', '\\n') as line
           from ${table} t,
                (select array_agg(attname::text order by attnum) as names from pg_attribute
                  where attrelid = $1::regclass and attnum > 0 and not attisdropped) c`,
        [table],
      );
      kept.set(table, Buffer.from(rows.map(({ line }) => `${line}\n`).join('')));
    }
    await database.query(`truncate ${TABLES.join(', ')}`);
    await database.query('vacuum analyze');
    await database.query('checkpoint');
  },
  async run(database) {
    await database.transaction(async (tx) => {
      for (const table of TABLES) {
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        tx.query(new CopyIn(`copy ${table} from stdin`, kept.get(table) ?? Buffer.alloc(0), resolve, reject));
        await promise;
      }
    });
  },
};

interface CopyConnection extends Connection {
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
}

/** COPY FROM STDIN as the driver's protocol layer offers it. */
class CopyIn implements Submittable {
  readonly #text: string;
  readonly #rows: Buffer;
  readonly #done: () => void;
  readonly #failed: (error: Error) => void;
  #error: Error | undefined;

  constructor(text: string, rows: Buffer, done: () => void, failed: (error: Error) => void) {
    this.#text = text;
    this.#rows = rows;
    this.#done = done;
    this.#failed = failed;
  }

  submit(connection: Connection): void {
    (connection as CopyConnection).query(this.#text);
  }

  handleCopyInResponse(connection: CopyConnection): void {
    for (let at = 0; at < this.#rows.length; at += 65_536)
      connection.sendCopyFromChunk(this.#rows.subarray(at, at + 65_536));
    connection.endCopyFrom();
  }

  handleCommandComplete(): void {}

  handleError(error: Error): void {
    this.#error = error;
  }

  handleReadyForQuery(): void {
    if (this.#error) this.#failed(this.#error);
    else this.#done();
  }
}
