import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { MqttOptions } from '../../../../src/apps/iot/mqtt/options.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { emptyDatabase } from '../../../support/postgres.ts';
import { quick } from './support.ts';

export interface ProcessSettings {
  readonly url: string;
  readonly mqtt: MqttOptions;
}

/** `again`: the inbox knew it. `duplicate`: the broker said so. */
const tables = `
  create table inbox (key text primary key);
  create table effects (id bigint generated always as identity, key text not null, device text not null,
                        number integer not null);
  create table deliveries (id bigint generated always as identity, key text not null, again boolean not null,
                           duplicate boolean not null)`;

const program = fileURLToPath(new URL('./consumer-process.ts', import.meta.url));

/** A consumer that commits to a database, in a process that can be killed and started again. */
export class Killable {
  readonly database: Database;
  readonly #settings: ProcessSettings;
  #child: ChildProcess | undefined;

  static async on(port: number, mqtt: Partial<MqttOptions> = {}): Promise<Killable> {
    const { url, drop } = await emptyDatabase();
    const database = await Database.connect({ url, poolSize: 2 });
    const killable = new Killable(database, {
      url,
      mqtt: {
        brokerHost: '127.0.0.1',
        brokerPort: port,
        environmentId: 'test',
        instanceId: 'one',
        subscribeTopics: ['d/#'],
        ...quick,
        ...mqtt,
      },
    });
    onTestFinished(async () => {
      await killable.kill();
      await database.close();
      await drop();
    });
    await database.query(tables);
    return killable;
  }

  private constructor(database: Database, settings: ProcessSettings) {
    this.database = database;
    this.#settings = settings;
  }

  /** Resolves when it has subscribed. */
  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error('it runs already');
    const child = fork(program, [JSON.stringify(this.#settings)], { stdio: 'inherit' });
    this.#child = child;
    await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code, signal]) => {
        if (signal !== 'SIGKILL') throw new Error(`the consumer ended with ${code ?? signal}`);
      }),
    ]);
  }

  /** At once, at any stage. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  async committed(): Promise<number> {
    const { rows } = await this.database.query<{ n: number }>('select count(*)::integer as n from inbox');
    return rows[0]?.n ?? 0;
  }

  /** Whatever is amiss; empty when every message had one effect, and each device's came in order. */
  async amiss(): Promise<object[]> {
    const { rows } = await this.database.query(`
      select * from (select key, device, number, count(*) over (partition by key) as times,
                            lag(number) over (partition by device order by id) as before from effects) e
       where times > 1 or number <= before limit 20`);
    return rows;
  }

  /** How many deliveries came of messages that were committed already, and those of them the broker did not announce. */
  async repeated(): Promise<{ again: number; unannounced: number }> {
    const { rows } = await this.database.query<{ again: number; unannounced: number }>(`
      select count(*) filter (where again)::integer as again,
             count(*) filter (where again and not duplicate)::integer as unannounced from deliveries`);
    return rows[0] ?? { again: -1, unannounced: -1 };
  }
}
