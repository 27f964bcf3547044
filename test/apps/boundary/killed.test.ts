/** Two `tallyman serve` processes with databases of their own, from the configurations that `zones pair` prints. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { type Cli, cliOn, type Started, scratch, start } from '../../cli/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { freePorts } from '../../support/services/service.ts';
import { until } from '../../support/until.ts';

interface Node {
  readonly cli: Cli;
  /** The frontier of the stream from the plant, straight from the database. */
  frontier(): Promise<number>;
  /** Begins to serve; does not wait until it does. */
  begin(): Started;
  serve(): Promise<Started>;
}

async function nodeOf(configFile: string, cwd: string): Promise<Node> {
  const { url } = await emptyDatabase();
  const env = {
    DATABASE_URL: url,
    TALLYMAN_CONFIG: configFile,
    TALLYMAN_SECRET_KEY: Buffer.alloc(32, 3).toString('base64'),
  };
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  const begin = (): Started =>
    start('src/cli/main.ts', ['serve', '--only', 'boundary', '--migrate'], { env, cwd });
  return {
    cli: cliOn(url, { env, cwd }),
    begin,
    frontier: async () => {
      const { rows } = await client.query<{ offset: number }>(
        `select source_offset::float8 as "offset" from boundary.streams where buffer = 'forward' and from_zone = 'plant-a'`,
      );
      return rows[0]?.offset ?? 0;
    },
    serve: async () => {
      const started = begin();
      await started.said(/"boundary +zone [a-z-]+ on https/);
      return started;
    },
  };
}

const kill = async ({ child, ended }: Started): Promise<void> => {
  child.kill('SIGKILL');
  await ended;
};

test('BND-8: two serve processes, either one killed in the middle: every fact arrives once, in order', async () => {
  const folder = await scratch();
  const [port = 0] = await freePorts(1);
  const pair = await start(
    'src/cli/main.ts',
    [
      'zones',
      'pair',
      'plant-a',
      'enterprise',
      '--folder',
      folder,
      '--url',
      `https://localhost:${port}`,
      '--port',
      '0',
      '--json',
    ],
    { cwd: folder },
  ).ended;
  expect(pair.code).toBe(0);
  const [first, second] = JSON.parse(pair.stdout).zones as { config: object }[];
  // What was printed is all that a node needs.
  const written = async (name: string, config: object | undefined): Promise<string> => {
    await mkdir(join(folder, name), { recursive: true });
    await writeFile(join(folder, name, 'printed.json'), JSON.stringify(config));
    return join(folder, name, 'printed.json');
  };
  const plant = await nodeOf(await written('plant-a', first?.config as object), folder);
  const enterprise = await nodeOf(await written('enterprise', second?.config as object), folder);
  let plantProcess = await plant.serve();
  let enterpriseProcess = await enterprise.serve();

  let appended = 0;
  const append = async (count: number): Promise<void> => {
    const file = join(folder, `facts-${appended}.jsonl`);
    const lines = Array.from({ length: count }, (_, i) =>
      JSON.stringify({
        message_id: `m${appended + i + 1}`,
        subject: `order:${appended + i + 1}`,
        predicate: 'is',
        object: i,
      }),
    );
    await writeFile(file, lines.join('\n'));
    const ended = await plant.cli('facts', 'append', '--lines', file, '--json');
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(ended.stdout).items.at(-1)).toMatchObject({
      offset: appended + count,
      existing: false,
    });
    appended += count;
  };
  const { frontier } = enterprise;

  await append(50);
  await until('the first facts have crossed', async () => (await frontier()) === 50, 120_000);

  /** A backlog gathers while a process is down; once it runs, and some of the backlog has crossed, it is killed again. */
  const killInTheMiddle = async (node: Node, before: Started): Promise<Started> => {
    for (let round = 1; round <= 5; round++) {
      await kill(before);
      const crossed = await frontier();
      await append(4000);
      const running = node.begin();
      await until('some facts have crossed', async () => (await frontier()) > crossed, 120_000);
      await kill(running);
      const isInTheMiddle = (await frontier()) < appended;
      const next = await node.serve();
      await until('the rest has crossed', async () => (await frontier()) === appended, 120_000);
      if (isInTheMiddle) return next;
      before = next;
    }
    throw new Error('all facts had crossed each time before the process was killed');
  };
  enterpriseProcess = await killInTheMiddle(enterprise, enterpriseProcess);
  plantProcess = await killInTheMiddle(plant, plantProcess);

  const ids: string[] = [];
  while (ids.length < appended) {
    const { stdout } = await enterprise.cli(
      'facts',
      'fetch',
      '--consumer',
      'erp',
      '-n',
      '1000',
      '--confirm',
      '--json',
    );
    const { items } = JSON.parse(stdout) as { items: { offset: number; message_id: string }[] };
    expect(items.length).toBeGreaterThan(0);
    expect(items[0]?.offset).toBe(ids.length + 1);
    ids.push(...items.map(({ message_id }) => message_id));
  }
  expect(ids).toEqual(Array.from({ length: appended }, (_, i) => `m${i + 1}`));
  for (const { child, ended } of [plantProcess, enterpriseProcess]) {
    child.kill('SIGTERM');
    expect(await ended).toMatchObject({ code: 0 });
  }
}, 600_000);
