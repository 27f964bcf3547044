import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type Cli, cliOn, complaint, scratch } from '../../cli/support.ts';
import { type Place, pairedZones, serveZone } from './zones.ts';

interface Node extends Place {
  readonly cli: Cli;
  readonly json: (...args: string[]) => Promise<Record<string, unknown>>;
}

async function nodeOf(place: Place): Promise<Node> {
  const cli = cliOn(place.url, { env: place.env, cwd: place.folder });
  expect((await cli('migrate')).code).toBe(0);
  const json = async (...args: string[]) => {
    const { stdout, stderr, code } = await cli(...args, '--json');
    expect([args, stderr, code]).toEqual([args, '', 0]);
    return JSON.parse(stdout) as Record<string, unknown>;
  };
  return { ...place, cli, json };
}

const append = ({ json }: Node, id: string, ...more: string[]) =>
  json(
    ...['facts', 'append', '--message-id', id, '--subject', `order:${id}`, '--predicate', 'has_state'],
    ...(more.length > 0 ? more : ['--object', '{"state": "done"}']),
  );

test('BND-11, BND-10: facts cross in a file and receipts come back; both zones are compared, and who was changed is named', {
  timeout: 300_000,
}, async () => {
  const paired = await pairedZones();
  const [plant, enterprise] = [await nodeOf(paired.plant), await nodeOf(paired.enterprise)];
  const folder = await scratch();
  const [facts, receipts] = [join(folder, 'facts.bundle'), join(folder, 'receipts.bundle')];
  const nothing = await plant.cli('facts', 'export-bundle', facts, '--to', 'enterprise');
  expect(nothing.stdout).toContain('nothing to carry over');
  const attachment = join(folder, 'order.txt');
  await writeFile(attachment, 'ten pallets');
  await plant.json('objects', 'put', 'files', 'order.txt', attachment);
  await append(plant, 'a', '--attach', 'files/order.txt');
  for (const id of ['b', 'c']) await append(plant, id);
  expect(await plant.json('facts', 'export-bundle', facts, '--to', 'enterprise')).toMatchObject({
    kind: 'facts',
    from_zone: 'plant-a',
    to_zone: 'enterprise',
    first_offset: 1,
    last_offset: 3,
  });

  const damaged = join(folder, 'damaged.bundle');
  await copyFile(facts, damaged);
  const bytes = await readFile(damaged);
  const at = bytes.indexOf('done');
  bytes.write('gone', at);
  await writeFile(damaged, bytes);
  expect((await enterprise.cli('facts', 'import-bundle', damaged)).code).not.toBe(0);
  expect(await enterprise.json('facts', 'import-bundle', facts)).toMatchObject({
    taken: 3,
    quarantined: 0,
    frontier: 3,
  });
  expect(await enterprise.json('facts', 'import-bundle', facts)).toMatchObject({ taken: 0, frontier: 3 });
  const fetched = await enterprise.json('facts', 'fetch', '--consumer', 'erp');
  expect(fetched).toMatchObject({ items: [{ message_id: 'a' }, { message_id: 'b' }, { message_id: 'c' }] });
  const copy = join(folder, 'copy.txt');
  await enterprise.cli('objects', 'get', 'files', 'order.txt', copy);
  expect(await readFile(copy, 'utf8')).toBe('ten pallets');

  expect(await enterprise.json('facts', 'export-bundle', receipts, '--from', 'plant-a')).toMatchObject({
    kind: 'receipts',
  });
  expect(await plant.json('facts', 'import-bundle', receipts)).toMatchObject({ confirmed_up_to: 3 });
  expect((await plant.cli('facts', 'export-bundle', facts, '--to', 'enterprise')).stdout).toContain(
    'nothing to carry',
  );
  expect((await plant.cli('facts', 'quarantine', '--to', 'enterprise')).stdout).toBe(
    'Nothing is in quarantine.\n',
  );
  expect(complaint(await plant.cli('facts', 'redrive', '2', '--to', 'enterprise'))).toMatch(/quarantine/);
  expect(complaint(await plant.cli('facts', 'redrive', '--to', 'enterprise'))).toMatch(/--all/);

  await serveZone(enterprise);
  expect(await plant.json('zones', 'reconcile', '--to', 'enterprise')).toMatchObject({
    in_agreement: true,
    equal: 3,
    gaps: 0,
    not_crossed: null,
    tampered: [],
  });
  expect((await plant.cli('zones', 'reconcile', '--to', 'enterprise')).stdout).toContain('both zones agree');
  const changed = await plant.rows(
    `update tallyman.log_entries set payload = replace(payload::text, 'done', 'lost')::json
      where "offset" = 2 returning 1`,
  );
  expect(changed).toHaveLength(1);
  const differing = await plant.cli('zones', 'reconcile', '--to', 'enterprise');
  expect(differing.code).toBe(1);
  expect(differing.stdout).toMatch(/Changed on the side of the source: fact 2 "b"/);
});
