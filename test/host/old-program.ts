/** A program of an earlier release, as far as the database knows it: the calls that it sends, with values by their names. */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import type { Call } from '../../scripts/fixture/calls.ts';

type Row = Readonly<Record<string, unknown>>;

const queue = 'default';
const lease = { leaseMs: 60_000, staleMs: 120_000 };

/** A job that it holds. */
interface Held {
  readonly token: string;
  readonly stream: number;
  readonly pos: string;
  readonly lane: string | undefined;
  readonly lanePos: string | undefined;
  readonly name: string;
}

export class OldProgram {
  readonly calls: Readonly<Record<string, Call>>;
  readonly #client: pg.Client;
  readonly #worker: string;

  static async connect(url: string, release: string, worker: string): Promise<OldProgram> {
    const calls = JSON.parse(readFileSync(`test/fixtures/${release}/calls.json`, 'utf8'));
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const program = new OldProgram(client, calls, worker);
    await program.call('present', { worker });
    return program;
  }

  private constructor(client: pg.Client, calls: Readonly<Record<string, Call>>, worker: string) {
    this.#client = client;
    this.calls = calls;
    this.#worker = worker;
  }

  async call(name: string, values: Row): Promise<Row[]> {
    const call = this.calls[name];
    if (!call) throw new Error(`the release has no call "${name}"`);
    const names = Object.keys(call.parameters);
    const unknown = Object.keys(values).filter((value) => !names.includes(value));
    if (unknown.length > 0) throw new Error(`"${name}" has no parameter ${unknown.join(', ')}`);
    const { rows } = await this.#client.query(
      call.text,
      names.map((parameter) => values[parameter] ?? null),
    );
    return rows;
  }

  /** Whether the server still knows a call with these types. Throws as PostgreSQL does. */
  async prepare(name: string): Promise<void> {
    const { text, parameters } = this.calls[name] as Call;
    const types = Object.values(parameters).map((type) => type.replace('?', ''));
    await this.#client.query(`prepare old${types.length > 0 ? ` (${types.join(', ')})` : ''} as ${text}`);
    await this.#client.query('deallocate old');
  }

  /** Three jobs alike, one with a key, two in a lane. */
  async enqueue(round: number): Promise<string[]> {
    const shared = { kind: 'fixture.job', maxAttempts: 5, tenant: 'default' };
    const alike = [1, 2, 3].map((n) => `alike ${round}.${n}`);
    await this.call('enqueue_alike', {
      ...{ queue, priority: 2, ...shared, notify: false },
      payloads: JSON.stringify(alike.map((name) => ({ name }))),
    });
    const job = { s: 1, k: shared.kind, m: 5, t: 'default', b: 'skip' };
    const [keyed, first, second] = [`keyed ${round}`, `lane ${round}.1`, `lane ${round}.2`];
    const rows = await this.call('enqueue_full', {
      ...{ queues: [queue], priorities: [2], notify: true, waitMs: 0 },
      jobs: JSON.stringify([
        { ...job, p: { name: keyed }, x: keyed },
        { ...job, p: { name: first }, l: 'old' },
        { ...job, p: { name: second }, l: 'old' },
        { ...job, p: { name: 'again' }, x: keyed },
      ]),
    });
    if (rows.map(({ existing }) => existing).join() !== 'false,false,false,true')
      throw new Error(`unexpected answer of enqueue_full: ${JSON.stringify(rows)}`);
    return [...alike, keyed, first, second];
  }

  /** Takes a turn. */
  async claim(): Promise<Held[]> {
    await this.call('make_rounds', { limit: 1000, allReturn: false });
    const rows = await this.call('claim', {
      ...{ worker: this.#worker, queues: [queue], wants: [100], total: 100, kinds: ['fixture.job'] },
      ...{ laneJobs: 10, late: true, ...lease, drop: [] },
    });
    return rows
      .filter(({ token }) => token !== null)
      .flatMap(({ token, stream, positions, payloads, lanes, lane_items }) => {
        const items = new Map((lane_items as string[][] | null)?.map(([id, pos]) => [id, pos]));
        const named = JSON.parse(`[${payloads}]`) as { name: string }[];
        return (positions as unknown[]).map((pos, i): Held => {
          const lane = (lanes as unknown[] | null)?.[i];
          const laneId = lane === null || lane === undefined ? undefined : String(lane);
          return {
            ...{ token: String(token), stream: Number(stream), pos: String(pos), lane: laneId },
            ...{ lanePos: laneId && items.get(laneId), name: named[i]?.name ?? '' },
          };
        });
      });
  }

  /** Renews its claims, and says that their jobs have started. */
  async keep(jobs: readonly Held[]): Promise<void> {
    const tokens = [...new Set(jobs.map(({ token }) => token))];
    const kept = await this.call('renew', { worker: this.#worker, ...lease });
    for (const token of tokens)
      if (!kept.some(({ answer }) => String(answer) === token)) throw new Error(`claim ${token} is lost`);
    const [lost] = await this.call('mark_started', { worker: this.#worker, tokens: [tokens[0]], ids: [1] });
    if ((lost?.answer as unknown[] | null)?.length) throw new Error(`claim ${tokens[0]} is lost`);
  }

  /** Completes what it holds. Answers the names. */
  async settle(jobs: readonly Held[]): Promise<string[]> {
    if (jobs.length === 0) return [];
    const free = jobs.filter(({ lane }) => lane === undefined);
    const lanes = [...new Set(jobs.flatMap(({ lane }) => lane ?? []))].map((lane) => {
      const own = jobs.filter((job) => job.lane === lane);
      const seqs = own.map(({ pos }) => Number(pos));
      return { lane, pos: own[0]?.lanePos, first: Math.min(...seqs), last: Math.max(...seqs), seqs };
    });
    const tokens = [...new Set(jobs.map(({ token }) => token))];
    const [answer] = await this.call('settle', {
      ...{ worker: this.#worker, claims: tokens, keepMs: 1e9, superseded: [] },
      streams: [...new Set(free.map(({ stream }) => stream))],
      positions: free.map(({ pos }) => pos),
      jobLanes: lanes.map(({ lane }) => lane),
      firstSeqs: lanes.map(({ first }) => first),
      lastSeqs: lanes.map(({ last }) => last),
      seqs: lanes.flatMap(({ seqs }) => seqs),
      lanes: lanes.map(({ lane }) => lane),
      lanePositions: lanes.map(({ pos }) => pos),
      laneFloors: lanes.map(({ last }) => last + 1),
      laneMore: lanes.map(() => false),
      drop: tokens,
    });
    const { lost, missing } = answer as { lost: unknown[] | null; missing: unknown[] | null };
    if (lost?.length || missing?.length)
      throw new Error(`settle has lost ${lost?.length} claims and misses ${missing?.length} jobs`);
    return jobs.map(({ name }) => name);
  }

  /** Reports a failed attempt: the job is to run again at once. Answers its status. */
  async fail(job: Held): Promise<unknown> {
    const item = { id: job.pos, pos: job.pos, attempts: 0, token: job.token, delay_ms: 0, cost: 1 };
    const error = { code: 'ERROR', message: 'tried in vain' };
    const [row] = await this.call('fail', {
      ...{ worker: this.#worker, keepMs: 1e9 },
      items: JSON.stringify([{ ...item, error, permanent: false, dead: false }]),
    });
    return row?.status;
  }

  close(): Promise<void> {
    return this.#client.end();
  }
}
