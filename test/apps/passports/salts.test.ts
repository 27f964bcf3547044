import { expect, test } from 'vitest';
import { world } from './world.ts';

/** Tables of all schemas whose rows, as text, hold one of the secrets that `sql` selects. */
const holders = `
  select n.nspname || '.' || c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
   where c.relkind in ('r', 'p') and n.nspname !~ '^(pg_|information_schema)' and not c.relispartition order by 1`;

test('BPC-8, BPC-12: the salt of a version is in its row and nowhere else; those of withheld parts are beside the values they hide', async () => {
  const { rows } = await world();
  const tables = await rows<{ name: string }>(holders);
  expect(tables.length).toBeGreaterThan(40);
  const holding = async (secrets: string): Promise<readonly string[]> => {
    const found: string[] = [];
    for (const { name } of tables) {
      const hits = await rows(
        `select 1 from ${name} t, (${secrets}) s (secret) where strpos(t::text, s.secret) > 0 limit 1`,
      );
      if (hits.length > 0) found.push(name);
    }
    return found;
  };
  expect(await holding('select salt from passports.versions')).toEqual(['passports.versions']);
  expect(
    await holding(
      `select a.payload::jsonb #>> array['points', p, 'salt'] from passports.artefacts a, unnest(array['2', '3', '4']) p`,
    ),
  ).toEqual(['passports.artefacts']);
});
