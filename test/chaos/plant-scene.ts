/** A plant to be tormented: a PostgreSQL of its own, environments with their databases, and what must be true of them. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect, onTestFinished } from 'vitest';
import { iotComponent } from '../../src/apps/iot/index.ts';
import type { MqttOptions } from '../../src/apps/iot/mqtt/index.ts';
import { rfidComponent, type TagRead } from '../../src/apps/rfid/index.ts';
import { readsTopic, registerDoors } from '../../src/apps/rfid/intake/index.ts';
import type { EmbeddedPostgres } from '../../src/engine/database/embedded/index.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { eventsComponent } from '../../src/events/component.ts';
import { deviceNames } from '../../src/simulate/readers.ts';
import type { BasketTruth, Truth } from '../../src/simulate/truth.ts';
import { quick } from '../apps/iot/mqtt/support.ts';
import { booksOf, expectedBooks } from '../apps/rfid/books.ts';
import type { ModelBasket } from '../apps/rfid/model.ts';
import { Instance } from './plant-instance.ts';

export const doors = 12;

/** An environment: a database, and the instances that share its messages. */
export class Environment {
  readonly name: string;
  readonly tallyman: Tallyman;
  readonly #url: string;

  /** With a database of its own on this server. */
  static async on(server: EmbeddedPostgres, name: string): Promise<Environment> {
    const client = new pg.Client({ connectionString: server.url, ssl: false });
    await client.connect();
    await client.query(`create database ${name}`).finally(() => client.end());
    const url = new URL(server.url);
    url.pathname = `/${name}`;
    return Environment.at(url.toString(), name);
  }

  /** In this database. */
  static async at(url: string, name: string): Promise<Environment> {
    const tallyman = await Tallyman.open({
      databaseUrl: url,
      migrate: true,
      components: [eventsComponent, iotComponent, rfidComponent],
      poolSize: 4,
    });
    onTestFinished(() => tallyman.close());
    await registerDoors(tallyman.database, deviceNames(doors));
    // Says who processed a read; the product does not care.
    await tallyman.database.query(
      `alter table rfid.tag_read_processings
         add column instance text default current_setting('application_name', true)`,
    );
    return new Environment(name, tallyman, url);
  }

  private constructor(name: string, tallyman: Tallyman, url: string) {
    this.name = name;
    this.tallyman = tallyman;
    this.#url = url;
  }

  instance(brokerPort: number, instanceId: string, more: Partial<MqttOptions> = {}): Instance {
    return new Instance({
      url: this.#url,
      name: instanceId,
      mqtt: {
        brokerHost: '127.0.0.1',
        brokerPort,
        environmentId: this.name,
        subscribeTopics: [readsTopic],
        instanceId,
        ...quick,
        ...more,
      },
    });
  }

  async rows<R>(sql: string): Promise<R[]> {
    return (await this.tallyman.database.query(sql)).rows as R[];
  }

  /** Waits until so many different reads are processed, for as long as they become more. */
  async processed(reads: number): Promise<void> {
    let most = -1;
    let deadline = 0;
    for (;;) {
      const [row] = await this.rows<{ n: number }>(
        'select count(*)::integer as n from rfid.tag_read_processings',
      );
      const n = row?.n ?? 0;
      if (n >= reads) return;
      if (n > most) {
        most = n;
        deadline = Date.now() + stuckAfterMs;
      } else if (Date.now() > deadline)
        throw new Error(`${n} of ${reads} reads are processed, as many as ${stuckAfterMs} ms ago`);
      await sleep(100);
    }
  }

  /** How many reads each instance processed. */
  async shares(): Promise<Record<string, number>> {
    const rows = await this.rows<{ instance: string; n: number }>(
      'select instance, count(*)::integer as n from rfid.tag_read_processings group by 1 order by 1',
    );
    return Object.fromEntries(rows.map(({ instance, n }) => [instance, n]));
  }

  /**
   * Every read of the truth once, and no other; every basket where it was seen last, when it was; and the movements of one pass
   * over the sorted reads, by the simulator's model and by that of the rules.
   */
  async expectToBe(truth: Truth, beganAt: number): Promise<void> {
    const { figures } = truth;
    const [counts] = await this.rows(
      `select count(*)::integer as reads, count(distinct content_hash)::integer as different,
              count(error_message)::integer as failed,
              (select count(*)::integer from rfid.baskets) as baskets,
              (select count(*)::integer from rfid.movements) as movements from rfid.tag_read_processings`,
    );
    expect(counts).toEqual({
      reads: figures.distinctReads,
      different: figures.distinctReads,
      failed: 0,
      baskets: figures.baskets,
      movements: figures.movements,
    });
    const books = await this.books();
    expect(summaries(books, beganAt)).toEqual(Object.fromEntries(truth.baskets));
    expect(books).toEqual(await this.#expectedBooks());
    expect((await this.tallyman.jobs.counts()).DEAD_LETTER).toBe(0);
  }

  books(): Promise<Record<string, ModelBasket>> {
    return booksOf(this.tallyman.database);
  }

  async #expectedBooks(): Promise<Record<string, ModelBasket>> {
    const reads = await this.rows<TagRead>(
      `select epc_hex as epc, device_id as "deviceId",
              to_char(event_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "eventTimestamp"
         from rfid.tag_read_processings`,
    );
    const places = Object.fromEntries(deviceNames(doors).map((name) => [name, `door of ${name}`]));
    return expectedBooks(reads, undefined, places);
  }
}

const stuckAfterMs = 40_000;

/** In the simulator's terms. */
const summaries = (books: Record<string, ModelBasket>, beganAt: number): Record<string, BasketTruth> =>
  Object.fromEntries(
    Object.entries(books).map(([epc, { device, lastSeen, movements }]) => [
      epc,
      {
        place: device,
        lastSeenAt: lastSeen - beganAt * 1000,
        movements: movements.length,
        repeats: movements.reduce((sum, { repeats }) => sum + repeats, 0),
      },
    ]),
  );
