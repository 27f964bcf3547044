import { describe, expect, onTestFinished, test } from 'vitest';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { asTenant } from '../../../src/engine/database/tenant.ts';
import { plant, read, tag, tenantId } from './support.ts';

describe('the border of rfid', () => {
  test('rfid does all its work under a role that may only read iot', async () => {
    const { tallyman, url, rows } = await plant();
    const role = `rfid_${url.slice(-12)}`;
    await tallyman.database.query(`
      create role ${role} login password 'rfid';
      grant usage on schema iot, rfid to ${role};
      grant select on all tables in schema iot to ${role};
      grant select, insert, update on all tables in schema rfid to ${role};
      grant usage on all sequences in schema rfid to ${role};
      grant usage on schema tallyman_events to ${role};
      grant insert on tallyman_events.events to ${role};
      grant select, usage on all sequences in schema tallyman_events to ${role};
      create policy everything on tallyman_events.events for insert to ${role} with check (true);
      create policy everything on iot.devices for select to ${role} using (true);
      create policy everything on rfid.baskets to ${role} using (true);
      create policy everything on rfid.movements to ${role} using (true);
      create policy everything on rfid.tag_read_processings to ${role} using (true);`);
    const address = new URL(url);
    address.username = role;
    address.password = 'rfid';
    const database = await Database.connect({ url: address.toString() });
    onTestFinished(async () => {
      await database.close();
      await tallyman.database.query(`drop owned by ${role}; drop role ${role}`);
    });
    const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
    const results = await processor.processTagReads([read('A', 0), read('B', 1), read('X', 2)]);
    expect(results.map((r) => r.success)).toEqual([true, true, false]);
    await expect(database.query(`delete from iot.devices`)).rejects.toThrow(/permission denied/);
    expect(await rows('select count(*)::int as n from rfid.movements')).toEqual([{ n: 2 }]);
  });

  test('a tenant’s own scope is enough, and holds nothing of others', async () => {
    const { tallyman, devices, processor, rows } = await plant();
    const { database } = tallyman;
    await database.query(`
      with l as (insert into iot.locations (tenant_id, name) values ('other', 'A') returning id)
      insert into iot.devices (tenant_id, serial, name, location_id) select 'other', 'A', 'A', id from l`);
    await processor.processTagReads([read('A', 0, { tenantId: 'other' })]);
    await asTenant(database, tenantId, async (scope) => {
      const own = new TagReadProcessor({ database: scope, devices });
      expect((await own.processTagReads([read('A', 0)]))[0]).toMatchObject({ isNewBasket: true });
      expect((await own.processTagReads([read('A', 0)]))[0]).toMatchObject({ skipReason: 'duplicate' });
      expect((await scope.query('select epc_hex from rfid.baskets')).rows).toEqual([{ epc_hex: tag(1) }]);
    });
    expect(await rows('select count(*)::int as n from rfid.baskets')).toEqual([{ n: 2 }]);
  });
});
