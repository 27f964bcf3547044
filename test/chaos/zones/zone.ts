/** A zone: a network, a database server, a node, and a producer, each a process that can be killed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { PairedZone } from '../../../src/apps/boundary/pairing/pair.ts';
import { until } from '../../support/until.ts';
import type { Content, ReceiptRange } from './contents-process.ts';
import type { ProducerTask } from './producer-process.ts';

const programOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const main = programOf('../../../src/cli/main.ts');

export interface ZoneOptions {
  readonly paired: PairedZone;
  readonly other: string;
  readonly folder: string;
  /** What goes before a command so that it runs in the zone's network. */
  readonly inNetwork: readonly string[];
  readonly listen: { readonly host: string; readonly port: number };
}

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Zone {
  readonly name: string;
  /** Offsets by message id, as the producer was told. */
  readonly answered = new Map<string, number>();
  /** What should not have happened. */
  readonly complaints: string[] = [];
  /** What the node has said last, since it was started. */
  log = '';
  readonly #options: ZoneOptions;
  readonly #children = new Set<ChildProcess>();
  #database: ChildProcess | undefined;
  #answers: AsyncIterator<string> | undefined;
  #node: ChildProcess | undefined;
  #producer: ChildProcess | undefined;
  #isServing = false;
  #isWanted = false;
  #restart: NodeJS.Timeout | undefined;
  #url = '';

  constructor(options: ZoneOptions) {
    this.#options = options;
    this.name = options.paired.zone;
  }

  async startDatabase(): Promise<void> {
    const child = this.#spawn([programOf('database-process.ts'), join(this.#options.folder, 'postgres')]);
    child.stderr?.on('data', (text: Buffer) => this.complaints.push(`database: ${text}`));
    if (!child.stdout) throw new Error('no output');
    this.#database = child;
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    this.#url = await this.#answer();
  }

  /** The server is gone with everything it had not written; so is each connection. */
  crashDatabase(signal: 'SIGKILL' | 'SIGQUIT'): Promise<string> {
    return this.#tell(`kill ${signal}`);
  }

  restartDatabase(): Promise<string> {
    return this.#tell('restart');
  }

  /** Returns how many rows it concerned. */
  async sql(statement: string): Promise<number> {
    return Number(await this.#tell(statement.replaceAll(/\s+/g, ' ')));
  }

  /** Runs until `stop`: as a service manager does, it starts a node again that has ended. */
  serve(): void {
    clearTimeout(this.#restart);
    this.#isWanted = true;
    this.#isServing = false;
    this.log = '';
    const child = this.#spawn([main, 'serve', '--only', 'boundary', '--migrate']);
    this.#node = child;
    for (const output of [child.stdout, child.stderr])
      output?.on('data', (text: Buffer) => {
        // What a process said that was killed may come late.
        if (this.#node !== child) return;
        this.log = (this.log + text).slice(-20_000);
        // A line may come in parts.
        if (/zone [a-z-]+ on https/.test(this.log)) this.#isServing = true;
      });
    child.once('exit', (code) => {
      if (this.#node !== child) return;
      if (this.#isServing && this.#isWanted)
        this.complaints.push(`the node ended by itself with ${code}: ${this.log.slice(-2000)}`);
      if (this.#isWanted) this.#restart = setTimeout(() => this.serve(), 300);
    });
  }

  serving(): Promise<void> {
    return until(`${this.name} serves`, () => this.#isServing, 120_000);
  }

  async killNode(): Promise<void> {
    const child = this.#node;
    this.#isWanted = false;
    clearTimeout(this.#restart);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  produce(task: Omit<ProducerTask, 'from' | 'to' | 'url' | 'files'>): void {
    const { paired, other, listen } = this.#options;
    const folder = join(paired.configFile, '..');
    const files = {
      key: join(folder, 'producer.key'),
      cert: join(folder, 'producer.crt'),
      ca: join(folder, '..', 'ca.crt'),
    };
    const whole: ProducerTask = {
      ...task,
      url: `https://${listen.host}:${listen.port}`,
      files,
      from: this.name,
      to: other,
    };
    const child = this.#spawn([programOf('producer-process.ts'), JSON.stringify(whole)]);
    if (!child.stdout) throw new Error('no output');
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [id = '', offset = ''] = line.split(' ');
      this.answered.set(id, Number(offset));
    });
    child.stderr?.on('data', (text: Buffer) => this.complaints.push(`producer: ${text}`));
    this.#producer = child;
  }

  /** Ends it when each of its facts has an answer. */
  async endProducer(): Promise<void> {
    const child = this.#producer;
    if (!child || child.exitCode !== null) return;
    child.kill('SIGTERM');
    const [code] = await once(child, 'close');
    if (code !== 0) this.complaints.push(`the producer ended with ${code}`);
  }

  async run(...args: string[]): Promise<Ended> {
    const child = this.#spawn([main, ...args]);
    let stdout = '';
    let stderr = '';
    child.stdout?.on('data', (text: Buffer) => {
      stdout += text;
    });
    child.stderr?.on('data', (text: Buffer) => {
      stderr += text;
    });
    const [code] = await once(child, 'close');
    return { code, stdout, stderr };
  }

  async contents(): Promise<(Content | ReceiptRange)[]> {
    const child = this.#spawn([programOf('contents-process.ts')]);
    if (!child.stdout) throw new Error('no output');
    child.stderr?.on('data', (text: Buffer) => this.complaints.push(`contents: ${text}`));
    const closed = once(child, 'close');
    const found: (Content | ReceiptRange)[] = [];
    for await (const line of createInterface({ input: child.stdout })) found.push(JSON.parse(line));
    await closed;
    return found;
  }

  async stop(): Promise<void> {
    await this.killNode();
    this.#producer?.kill('SIGKILL');
    const database = this.#database;
    if (database && database.exitCode === null) {
      database.stdin?.end();
      await once(database, 'exit');
    }
    for (const child of this.#children) child.kill('SIGKILL');
  }

  async #tell(line: string): Promise<string> {
    this.#database?.stdin?.write(`${line}\n`);
    return this.#answer();
  }

  async #answer(): Promise<string> {
    const next = await this.#answers?.next();
    if (!next || next.done)
      throw new Error(`the database of ${this.name} is gone: ${this.complaints.join('\n')}`);
    return next.value;
  }

  #spawn(args: readonly string[]): ChildProcess {
    const [program = process.execPath, ...before] = [...this.#options.inNetwork, process.execPath];
    const child = spawn(program, [...before, ...args], {
      cwd: this.#options.folder,
      env: {
        PATH: process.env.PATH ?? '',
        NO_COLOR: '1',
        DATABASE_URL: this.#url,
        TALLYMAN_CONFIG: this.#options.paired.configFile,
        TALLYMAN_SECRET_KEY: Buffer.alloc(32, 3).toString('base64'),
        TALLYMAN_BOUNDARY_HOST: this.#options.listen.host,
        TALLYMAN_BOUNDARY_PORT: String(this.#options.listen.port),
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    child.stdin?.on('error', () => {});
    return child;
  }
}
