import { createServer } from 'node:net';
import { userInfo } from 'node:os';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { emptyDatabase, freshDatabase } from '../support/postgres.ts';
import { cliOn, complaint } from './support.ts';

async function empty(): Promise<string> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  return url;
}

async function sql(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(text).finally(() => client.end());
}

test('migrate: dry run, the real thing, and again', async () => {
  const cli = cliOn(await empty());
  const dry = await cli('migrate', '--dry-run');
  expect(dry).toMatchObject({ code: 0, stderr: '' });
  expect(dry.stdout).toMatch(
    /^Would apply \d+ migrations and \d+ function files:\n {2}engine\/0001_tables\n(?:.*\n)*? {2}engine\/functions\/claim\n/,
  );
  const pending = JSON.parse((await cli('migrate', '--dry-run', '--json')).stdout);
  expect(pending).toMatchObject({ applied: [], breaking: [], current: 0 });
  expect(pending.pending[0]).toBe('engine/0001_tables');
  // Still nothing there: the dry run wrote nothing.
  expect((await cli('jobs', 'list')).code).toBe(4);
  expect((await cli('migrate')).stdout).toMatch(
    /^Applied \d+ migrations and \d+ function files:\n {2}engine\/0001_tables\n/,
  );
  expect((await cli('migrate')).stdout).toMatch(/^The database is up to date \(\d+ migrations\)\.\n$/);
  expect((await cli('jobs', 'list')).stdout).toBe('No jobs.\n');
});

test('migrate: functions of another text are pending until they are replaced', async () => {
  const url = await empty();
  const cli = cliOn(url);
  await cli('migrate');
  await sql(url, `update tallyman.functions set checksum = 'other' where name = 'functions/claim'`);
  const refused = await cli('jobs', 'list');
  expect(complaint(refused)).toContain(
    'The database lacks 1 function file, first "engine/functions/claim". Run: tallyman migrate',
  );
  expect(refused.code).toBe(4);
  expect((await cli('doctor')).stdout).toMatch(
    /fail {2}migrations: .*functions\/claim.*\n {6}→ Run: tallyman migrate/,
  );
  expect((await cli('migrate', '--dry-run')).stdout).toBe(
    'Would apply 1 function file:\n  engine/functions/claim\n',
  );
  expect((await cli('migrate')).stdout).toBe('Applied 1 function file:\n  engine/functions/claim\n');
  expect((await cli('jobs', 'list')).code).toBe(0);
});

test('MIGRATION_CHANGED and DATABASE_TOO_NEW: exit code 4, and no word of reset outside of the embedded database', async () => {
  const url = await empty();
  const cli = cliOn(url);
  await cli('migrate');
  await sql(
    url,
    `insert into tallyman.migrations (component, version, name, checksum, breaking, release)
     values ('engine', 9999, '9999_other', '', true, '99.0.0')`,
  );
  const older = await cli('migrate', '--dry-run');
  expect(complaint(older)).toMatch(
    /breaking migration "engine\/9999_other".*Update this program to 99\.0\.0 or later/,
  );
  expect(older.code).toBe(4);
  await sql(
    url,
    `update tallyman.migrations set checksum = 'other' where version = 1 and component = 'engine'`,
  );
  const changed = await cli('jobs', 'list');
  expect(complaint(changed)).toMatch(
    /^error: Migration "engine\/0001_tables" was applied .* with other contents/,
  );
  expect(changed.stderr).not.toContain('tallyman reset');
  expect(changed.code).toBe(4);
  const doctor = await cli('doctor', '--json');
  expect(doctor.code).toBe(5);
  expect(JSON.parse(doctor.stdout).findings).toMatchObject([{ check: 'migrations', level: 'fail' }]);
});

test('a database that is not migrated: every command says what to do', async () => {
  const cli = cliOn(await empty());
  for (const args of [
    ['jobs', 'list'],
    ['queues', 'pause', 'x'],
    ['dead-letters', 'redrive', '1'],
  ]) {
    const ended = await cli(...args);
    expect(complaint(ended)).toContain('Run: tallyman migrate');
    expect(ended.code).toBe(4);
  }
  const doctor = await cli('doctor');
  expect(doctor.code).toBe(5);
  expect(doctor.stdout).toMatch(/fail {2}migrations: .*\n {6}→ Run: tallyman migrate/);
});

test('doctor: a sound database passes, findings come as JSON too', async () => {
  const fresh = await freshDatabase();
  onTestFinished(fresh.drop);
  const cli = cliOn(fresh.url);
  const sound = await cli('doctor');
  expect(sound).toMatchObject({ code: 0, stderr: '' });
  expect(sound.stdout).toMatch(/ok {4}server-version: PostgreSQL \d+/);
  expect(sound.stdout).toMatch(/Fit for work/);
  const { healthy, findings } = JSON.parse((await cli('doctor', '--json')).stdout);
  expect(healthy).toBe(true);
  expect(findings.length).toBeGreaterThan(5);
  const name = new URL(fresh.url).pathname.slice(1);
  await sql(fresh.url, `alter database ${name} set synchronous_commit = off`);
  const unsafe = await cli('doctor', '--json');
  expect(unsafe.code).toBe(5);
  const durability = (finding: { check: string }) => finding.check === 'durability';
  expect(JSON.parse(unsafe.stdout).findings.find(durability)).toMatchObject({ level: 'fail' });
});

test('ENG-20: doctor jobs: nothing amiss, work that can never move, and a database that is not migrated', async () => {
  const { url, drop } = await freshDatabase();
  onTestFinished(drop);
  const cli = cliOn(url);
  const sound = await cli('doctor', 'jobs');
  expect(sound).toMatchObject({ code: 0, stderr: '' });
  expect(sound.stdout).toMatch(
    /ok {4}work: everything that waits can move\nok {4}workers: 0 present\n\nFit for work/,
  );
  await sql(url, `select tallyman.register_kind('k'); select tallyman.enqueue('k', lane => 'a')`);
  await sql(url, 'update tallyman.lanes set pos = null');
  const stuck = await cli('doctor', 'jobs');
  expect(stuck.code).toBe(5);
  expect(stuck.stdout).toMatch(/fail {2}work: lane at rest with work: \d+ \(lane a, first job \d+\)\n {6}→ /);
  const { healthy, findings } = JSON.parse((await cli('doctor', 'jobs', '--json')).stdout);
  expect(healthy).toBe(false);
  expect(findings).toMatchObject([
    { check: 'work', level: 'fail' },
    { check: 'workers', level: 'warn' },
  ]);
  const bare = await cliOn(await empty())('doctor', 'jobs');
  expect(bare.code).toBe(5);
  expect(bare.stdout).toMatch(/fail {2}migrations: .*tallyman migrate/);
});

test('doctor finds out that the server is away', async () => {
  const { code, stdout } = await cliOn('postgres://nobody:secret@127.0.0.1:1/none')('doctor', '--json');
  expect(code).toBe(5);
  expect(JSON.parse(stdout)).toMatchObject({
    healthy: false,
    findings: [
      { check: 'connection', level: 'fail', message: expect.stringContaining('Cannot reach PostgreSQL') },
    ],
  });
  expect(stdout).not.toContain('secret');
});

test('an address nobody listens at', async () => {
  const ended = await cliOn('postgres://nobody:secret@127.0.0.1:1/none')('jobs', 'list');
  expect(complaint(ended)).toMatch(
    /^error: Cannot reach PostgreSQL at postgres:\/\/nobody:…@127\.0\.0\.1:1\/none: /,
  );
  expect(ended.stderr.trim().split('\n')).toHaveLength(1);
  expect(ended.code).toBe(4);
});

test.each(['mysql://127.0.0.1/x', 'not an address'])(
  'DATABASE_URL=%s is no PostgreSQL address',
  async (url) => {
    const ended = await cliOn(url)('jobs', 'list');
    expect(complaint(ended)).toContain(
      'database.url (from DATABASE_URL): expected an address that begins with postgres://',
    );
    expect(ended.code).toBe(2);
  },
);

test('a wrong password and a database that is not there', async () => {
  const url = new URL(await empty());
  const missing = new URL(url);
  missing.pathname = '/no_such_database';
  const ended = await cliOn(missing.toString())('jobs', 'list');
  expect(complaint(ended)).toContain('There is no such database');
  expect(ended.code).toBe(4);
  if (!url.password) return;
  url.password = 'wrong';
  const refused = await cliOn(url.toString())('jobs', 'list');
  expect(complaint(refused)).toContain('refused the login');
  expect(refused.code).toBe(4);
});

test('a user without privileges', async () => {
  const fresh = await freshDatabase();
  onTestFinished(fresh.drop);
  const role = `guest_${process.pid}`;
  await fresh.database.query(`create role ${role} login password 'guest'`);
  onTestFinished(async () => {
    const { url, drop } = await emptyDatabase();
    await sql(url, `drop role ${role}`).finally(drop);
  });
  const url = new URL(fresh.url);
  url.username = role;
  url.password = 'guest';
  const cli = cliOn(url.toString());
  const closed = await cli('jobs', 'list');
  expect(complaint(closed)).toContain('The database user may not do this: permission denied');
  expect(closed.code).toBe(4);
  await fresh.database.query(
    `grant usage on schema tallyman to ${role}; grant select on tallyman.migrations, tallyman.functions to ${role}`,
  );
  onTestFinished(async () => {
    await fresh.database.query(`drop owned by ${role}`);
  });
  const half = await cli('jobs', 'list');
  expect(complaint(half)).toMatch(/permission denied .* Grant it rights on schema "tallyman"/);
  expect(half.code).toBe(4);

  const bare = new URL(await empty());
  bare.username = role;
  bare.password = 'guest';
  const migrate = await cliOn(bare.toString())('migrate');
  expect(complaint(migrate)).toContain('or be allowed to create it');
  expect(migrate.code).toBe(4);
});

test('a server that is too old', async () => {
  // A server that speaks just enough of the protocol to say that it is PostgreSQL 14.
  const message = (type: string, body: Buffer): Buffer => {
    const head = Buffer.alloc(5);
    head.write(type);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const ready = message('Z', Buffer.from('I'));
  const column = Buffer.concat([
    Buffer.from('\0\x01version\0'),
    Buffer.from('000000000000000000190000ffffffff0000ffff', 'hex').subarray(0, 18),
  ]);
  const row = Buffer.concat([Buffer.from([0, 1, 0, 0, 0, 6]), Buffer.from('140011')]);
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(Buffer.concat([message('R', Buffer.alloc(4)), ready]));
      socket.on('data', (data) => {
        // A statement with parameters: it takes the settings of the session, and answers nothing.
        if (data.toString('latin1', 0, 1) === 'P')
          socket.write(
            Buffer.concat([
              ...['1', '2', 'n'].map((type) => message(type, Buffer.alloc(0))),
              message('C', Buffer.from('SELECT 0\0')),
              ready,
            ]),
          );
        if (data.toString('latin1', 0, 1) !== 'Q') return;
        socket.write(
          Buffer.concat([
            message('T', column),
            message('D', row),
            message('C', Buffer.from('SELECT 1\0')),
            ready,
          ]),
        );
      });
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  onTestFinished(() => void server.close());
  const { port } = server.address() as { port: number };
  const ended = await cliOn(`postgres://${userInfo().username}@127.0.0.1:${port}/old`)('jobs', 'list');
  expect(complaint(ended)).toContain('PostgreSQL 14 at');
  expect(ended.stderr).toContain('is too old: Tallyman needs 15 or later');
  expect(ended.code).toBe(4);
});
