/** A plant to be tormented: a PostgreSQL of its own, environments with their databases, and what must be true of them. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect, onTestFinished } from 'vitest';
import { iotComponent } from '../../src/apps/iot/index.ts';
import type { MqttOptions } from '../../src/apps/iot/mqtt/index.ts';
import { rfidComponent } from '../../src/apps/rfid/index.ts';
import { registerDoors } from '../../src/apps/rfid/intake/index.ts';
import type { EmbeddedPostgres } from '../../src/engine/database/embedded/index.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { eventsComponent } from '../../src/events/component.ts';
import { deviceNames } from '../../src/simulate/readers.ts';
import { Truth } from '../../src/simulate/truth.ts';
import { quick } from '../apps/iot/mqtt/support.ts';
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
   * Every read of the truth once, and no other; every basket where it was seen last, when it was; every movement that the plain
   * model makes of the reads in the order in which they were processed.
   */
  async expectToBe(truth: Truth, beganAt: number): Promise<void> {
    const { figures } = truth;
    const [counts] = await this.rows(
      `select count(*)::integer as reads, count(distinct content_hash)::integer as different,
              count(error_message)::integer as failed,
              (select count(*)::integer from rfid.baskets) as baskets from rfid.tag_read_processings`,
    );
    expect(counts).toEqual({
      reads: figures.distinctReads,
      different: figures.distinctReads,
      failed: 0,
      baskets: figures.baskets,
    });
    const recorded = await this.#inRecordedOrder(beganAt);
    const found = await this.#baskets(beganAt);
    expect(found).toEqual(summary(recorded));
    expect(places(found)).toEqual(places(summary(truth)));
    expect(await this.#movementsAmiss()).toEqual([]);
    expect((await this.tallyman.jobs.counts()).DEAD_LETTER).toBe(0);
  }

  /** What the plain model makes of the reads in the order of their rows, which for each basket is that of their commits. */
  async #inRecordedOrder(beganAt: number): Promise<Truth> {
    const reads = await this.rows<{ epc: string; device: string; micros: string }>(
      `select epc_hex as epc, device_id as device, (extract(epoch from event_timestamp) * 1000000)::bigint as micros
         from rfid.tag_read_processings order by id`,
    );
    const truth = new Truth();
    for (const { epc, device, micros } of reads)
      truth.sent([{ epc, device, at: Number(micros) - beganAt * 1000 }], false);
    return truth;
  }

  async #baskets(beganAt: number): Promise<Record<string, BasketSummary>> {
    const rows = await this.rows<{ epc: string; place: string; micros: string; movements: number }>(
      `select b.epc_hex as epc, d.serial as place, (extract(epoch from b.last_seen_at) * 1000000)::bigint as micros,
              (select count(*)::integer from rfid.movements m where m.basket_id = b.id) as movements
         from rfid.baskets b join iot.devices d on d.location_id = b.location_id`,
    );
    return Object.fromEntries(
      rows.map(({ epc, place, micros, movements }) => [
        epc,
        { place, lastSeenAt: Number(micros) - beganAt * 1000, movements },
      ]),
    );
  }

  /** Movements that do not begin where the one before ended, or that are not the work of exactly one read. */
  #movementsAmiss(): Promise<unknown[]> {
    return this.rows(
      `select * from (
         select m.id, m.from_location_id, lag(m.to_location_id) over (partition by m.basket_id order by m.id) as before,
                (select count(*) from rfid.tag_read_processings p
                  where p.movement_id = m.id and p.skip_reason is null) as reads
           from rfid.movements m) m
        where reads <> 1 or from_location_id is distinct from before limit 10`,
    );
  }
}

const stuckAfterMs = 40_000;

interface BasketSummary {
  readonly place: string;
  readonly lastSeenAt: number;
  readonly movements: number;
}

const summary = (truth: Truth): Record<string, BasketSummary> =>
  Object.fromEntries(
    [...truth.baskets].map(([epc, { place, lastSeenAt, movements }]) => [
      epc,
      { place, lastSeenAt, movements },
    ]),
  );

/** Without the movements: those of reads that overtook each other depend on who came first. */
const places = (baskets: Record<string, BasketSummary>): object =>
  Object.fromEntries(
    Object.entries(baskets).map(([epc, { place, lastSeenAt }]) => [epc, { place, lastSeenAt }]),
  );
