/**
 * The books of one run: what the simulated readers sent, compared with what is in the tables. They share no code with the
 * product that they check, so that they can find its mistakes.
 *
 * A sent read is open until its row is found. A row without an open read was counted twice. A read that the broker
 * acknowledged is lost if its row is missing while younger rows of the same device exist, for longer than a commit can
 * take. At the end, when nothing is in progress, every open read is lost.
 */

import type { Database } from '../../../engine/database/database.ts';
import type { Transmission } from '../../../simulate/readers.ts';
import { basketTag } from '../../../simulate/tags.ts';
import type { Truth } from '../../../simulate/truth.ts';
import { unreadableKind } from '../intake/index.ts';

export const tenantId = 'default';

/** Each run has its own baskets: messages that an earlier run left at the broker are processed but not counted in this run. */
export interface Run {
  readonly firstBasket: number;
  readonly baskets: number;
  /** Rows of earlier runs. */
  readonly before: { readonly runs: number; readonly reads: number; readonly baskets: number };
}

const basketsPerRun = 100_000;
const setUpLock = 0x7411_de30;

/** Two demos on one database may start at once. */
export async function beginRun(database: Database, baskets: number): Promise<Run> {
  return database.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock($1)', [setUpLock]);
    await tx.query(`
      create schema if not exists demo;
      create table if not exists demo.runs (
        id bigint generated always as identity primary key, started_at timestamptz not null default now())`);
    const { rows } = await tx.query<Record<'id' | 'runs' | 'reads' | 'baskets', string>>(
      `with run as (insert into demo.runs default values returning id)
       select id, (select count(*) from demo.runs) as runs, (select count(*) from rfid.baskets) as baskets,
              (select count(*) from rfid.tag_read_processings where error_message is null) as reads
         from run`,
    );
    const { id = '1', runs, reads, baskets: known } = rows[0] ?? {};
    return {
      firstBasket: Number(id) * basketsPerRun,
      baskets,
      before: { runs: Number(runs), reads: Number(reads), baskets: Number(known) },
    };
  });
}

export interface Balance {
  /** Reads that were sent, including those sent again. */
  readonly sent: number;
  readonly distinct: number;
  readonly counted: number;
  /** Arrived again, from the reader or from the broker, and had no effect. */
  readonly dropped: number;
  readonly inFlight: number;
  readonly lost: number;
  readonly twice: number;
  readonly movements: number;
  readonly movementsExpected: number;
  readonly baskets: number;
  readonly basketsExpected: number;
  /** Baskets that are at a wrong place, or moved a wrong number of times; known at the end. */
  readonly astray: number;
  readonly damaged: number;
  readonly deadLetters: number;
  /** Nothing is in progress any more: the numbers must be equal. */
  readonly complete: boolean;
}

export function balances(b: Balance): boolean {
  if (b.lost > 0 || b.twice > 0 || b.distinct !== b.counted + b.inFlight) return false;
  if (b.baskets > b.basketsExpected) return false;
  // A read that is still to come may make two movements one.
  if (!b.complete) return true;
  const left = b.inFlight + b.astray + b.damaged - b.deadLetters;
  return left === 0 && b.movements === b.movementsExpected && b.baskets === b.basketsExpected;
}

interface Open {
  readonly device: string;
  readonly number: number;
  acknowledgedAt: number | undefined;
}

/** Rows may commit in another order than their ids, because a transaction that began earlier may commit later; but not later than this. */
const settledAfterSeconds = 10;

export class Books {
  readonly #database: Database;
  readonly #truth: Truth;
  readonly #range: readonly [first: string, last: string];
  readonly #open = new Map<string, Open>();
  /** Damaged messages whose dead letters have not been found. */
  readonly #damaged = new Set<string>();
  /** The youngest counted message of each device. */
  readonly #reached = new Map<string, number>();
  /** Rows above the mark that were already checked. */
  readonly #seen = new Set<string>();
  #mark = '0';
  #rawMark = '0';
  #rawBelow = 0;
  #numbers = 0;
  #counted = 0;
  #twice = 0;

  constructor(database: Database, run: Run, truth: Truth) {
    this.#database = database;
    this.#truth = truth;
    this.#range = [basketTag(run.firstBasket), basketTag(run.firstBasket + run.baskets - 1)];
  }

  /** Records a message that is sent. Returns a function to call when the broker has acknowledged it. */
  send({ device, reads, again, payload }: Transmission, beganAt: number): () => void {
    this.#numbers += 1;
    const number = this.#numbers;
    if (reads.length === 0) this.#damaged.add(payload(beganAt));
    if (again) return () => {};
    const entries = reads.map((read): Open => {
      const open: Open = { device, number, acknowledgedAt: undefined };
      this.#open.set(`${device}|${read.epc}|${beganAt * 1000 + read.at}`, open);
      return open;
    });
    return () => {
      for (const open of entries) open.acknowledgedAt = performance.now();
    };
  }

  /** Whether a sent read has not been found yet. */
  get isOpen(): boolean {
    return this.#open.size + this.#damaged.size > 0;
  }

  /** During the run. */
  async audit(): Promise<Balance> {
    await this.#strikeOut();
    const raw = await this.#countRaw();
    const places = await this.#places();
    const lost = [...this.#open.values()].filter((open) => this.#isOvertaken(open)).length;
    return this.#balance({ raw, places, lost, complete: false });
  }

  /**
   * After the last message was sent. `drained`: everything has had time to arrive; open reads will not come. Counts all rows
   * of the run again, whatever was counted before.
   */
  async close(drained: boolean): Promise<Balance> {
    const running = await this.audit();
    const places = await this.#places();
    const off = (await this.#countRows()) - this.#counted - this.#twice;
    this.#twice += Math.max(0, off);
    const gone = Math.max(0, -off);
    this.#counted -= gone;
    const open = [...this.#open.values()];
    const missing = drained ? open.filter((each) => each.acknowledgedAt !== undefined).length : running.lost;
    const complete = open.length === 0 || drained;
    return this.#balance({ raw: running.counted + running.dropped, places, lost: missing, gone, complete });
  }

  #balance(found: {
    readonly raw: number;
    readonly places: ReadonlyMap<string, Place>;
    readonly lost: number;
    readonly gone?: number;
    readonly complete: boolean;
  }): Balance {
    const { reads, distinctReads, damaged, movements, baskets } = this.#truth.figures;
    const { places, complete, lost, gone = 0 } = found;
    return {
      sent: reads,
      distinct: distinctReads,
      counted: this.#counted,
      dropped: Math.max(0, found.raw - this.#counted - gone),
      inFlight: this.#open.size - lost,
      lost: lost + gone,
      twice: this.#twice,
      movements: [...places.values()].reduce((sum, place) => sum + place.movements, 0),
      movementsExpected: movements,
      baskets: places.size,
      basketsExpected: baskets,
      astray: complete ? this.#astray(places) : 0,
      damaged,
      deadLetters: damaged - this.#damaged.size,
      complete,
    };
  }

  #isOvertaken({ device, number, acknowledgedAt }: Open): boolean {
    return (
      acknowledgedAt !== undefined &&
      number < (this.#reached.get(device) ?? 0) &&
      performance.now() - acknowledgedAt > settledAfterSeconds * 1000
    );
  }

  #astray(places: ReadonlyMap<string, Place>): number {
    return [...this.#truth.baskets].filter(([epc, truth]) => {
      const found = places.get(epc);
      return found?.device !== truth.place || found.movements !== truth.movements;
    }).length;
  }

  async #strikeOut(): Promise<void> {
    const { rows } = await this.#database.query<{ id: string; key: string; settled: boolean }>(
      `select id, device_id || '|' || epc_hex || '|' || (extract(epoch from event_timestamp) * 1000000)::bigint as key,
              processed_at < now() - make_interval(secs => $4) as settled
         from rfid.tag_read_processings
        where id > $1 and tenant_id = $5 and error_message is null
          and epc_hex collate "C" between $2 and $3
        order by id`,
      [this.#mark, ...this.#range, settledAfterSeconds, tenantId],
    );
    for (const { id, key } of rows) {
      if (this.#seen.has(id)) continue;
      this.#seen.add(id);
      const open = this.#open.get(key);
      if (open === undefined) {
        this.#twice += 1;
        continue;
      }
      this.#open.delete(key);
      this.#counted += 1;
      this.#reached.set(open.device, Math.max(open.number, this.#reached.get(open.device) ?? 0));
    }
    const mark = rows.findLast(({ settled }) => settled)?.id;
    if (mark !== undefined) {
      this.#mark = mark;
      for (const id of this.#seen) if (BigInt(id) <= BigInt(mark)) this.#seen.delete(id);
    }
    if (this.#damaged.size === 0) return;
    const { rows: deadLetters } = await this.#database.query<{ body: string }>(
      `select payload ->> 'body' as body from tallyman.dead_letters_of($1, $2) where payload ->> 'body' = any ($3)`,
      [tenantId, unreadableKind, [...this.#damaged]],
    );
    for (const { body } of deadLetters) this.#damaged.delete(body);
  }

  /** All raw reads of this run, as often as they came. */
  async #countRaw(): Promise<number> {
    const { rows } = await this.#database.query<{ n: string; below: string; mark: string | null }>(
      `with raw as (
         select id, received_at < now() - make_interval(secs => $4) as settled from iot.tag_reads
          where id > $1 and tenant_id = $5 and epc_hex collate "C" between $2 and $3
       ), mark as (select max(id) as id from raw where settled)
       select count(*) as n, count(*) filter (where raw.id <= mark.id) as below, max(mark.id) as mark
         from raw, mark`,
      [this.#rawMark, ...this.#range, settledAfterSeconds, tenantId],
    );
    const { n = '0', below = '0', mark = null } = rows[0] ?? {};
    const all = this.#rawBelow + Number(n);
    this.#rawBelow += Number(below);
    this.#rawMark = mark ?? this.#rawMark;
    return all;
  }

  async #countRows(): Promise<number> {
    const { rows } = await this.#database.query<{ n: string }>(
      `select count(*) as n from rfid.tag_read_processings
        where tenant_id = $3 and error_message is null and epc_hex collate "C" between $1 and $2`,
      [...this.#range, tenantId],
    );
    return Number(rows[0]?.n);
  }

  async #places(): Promise<Map<string, Place>> {
    const { rows } = await this.#database.query<{ epc: string; device: string | null; movements: string }>(
      `select b.epc_hex as epc, d.serial as device,
              (select count(*) from rfid.movements m where m.basket_id = b.id) as movements
         from rfid.baskets b left join iot.devices d on d.tenant_id = b.tenant_id and d.location_id = b.location_id
        where b.tenant_id = $3 and b.epc_hex between $1 and $2`,
      [...this.#range, tenantId],
    );
    return new Map(
      rows.map(({ epc, device, movements }) => [epc, { device, movements: Number(movements) }] as const),
    );
  }
}

interface Place {
  readonly device: string | null;
  readonly movements: number;
}
