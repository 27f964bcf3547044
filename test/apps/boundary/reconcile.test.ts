import { describe, expect, test, vi } from 'vitest';
import { isSignedBy } from '../../../src/apps/boundary/domain/receipt.ts';
import { reconcileWithPeer } from '../../../src/apps/boundary/reconcile/reconcile.ts';
import { dropQuarantined } from '../../../src/apps/boundary/redrive.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

const signal = new AbortController().signal;

async function crossed() {
  const zones = await twoZones();
  const { plant, enterprise, append, putObject, push, options } = zones;
  for (let n = 1; n <= 45; n++) await append(`m${n}`, { n });
  await putObject('taken', Buffer.from('theirs'), enterprise);
  await append('poison', await putObject('taken', Buffer.from('ours')));
  for (let i = 0; i < 3; i++) await push();
  await append('late');
  const { peer, isGenuine } = options;
  const reconcile = () => reconcileWithPeer({ store: plant.store, stream: out, peer, isGenuine, signal });
  return { ...zones, reconcile };
}

const tamper = (at: 'plant' | 'enterprise', offset: number, zones: Awaited<ReturnType<typeof crossed>>) =>
  zones[at].database.query(
    `update tallyman.log_entries set payload = replace(payload::text, '"producedAt":1', '"producedAt":7')::json
      where "offset" = $1`,
    [offset],
  );

describe('reconcile over the line', () => {
  test('BND-10: says what crossed when and what did not, and takes copies of receipts whose answers were lost', async () => {
    const zones = await crossed();
    const { plant, enterprise, reconcile } = zones;
    await plant.database.query('delete from boundary.receipts where to_offset = 40');
    const first = await reconcile();
    expect(first).toMatchObject({
      crossed: [
        { from: 1, to: 20, isCopyMissing: false },
        { from: 21, to: 40, isCopyMissing: true },
        { from: 41, to: 46, isCopyMissing: false },
      ],
      notCrossed: { from: 47, to: 47 },
      quarantined: [{ offset: 46, messageId: 'poison', reason: 'object_differs' }],
      problems: [],
      tampered: [],
      equal: 46,
      gaps: 1,
      copied: 1,
      isInAgreement: true,
    });
    const kept = await enterprise.store.receipts(into, { after: 0, limit: 10 });
    expect(first.crossed.map(({ at }) => at.getTime())).toEqual(kept.map(({ receivedAt }) => receivedAt));
    const stored = await plant.store.receipts(out, { after: 0, limit: 10 });
    expect(stored.every((receipt) => isSignedBy(receipt, enterprise.publicKey))).toBe(true);
    expect(await reconcile()).toMatchObject({ copied: 0, isInAgreement: true });
    // What became of the fact in quarantine is told, too.
    const { store, objects, admission } = plant;
    await dropQuarantined({ store, objects, admission, stream: out }, { offset: 46 }, 'not needed');
    await zones.push();
    expect(await reconcile()).toMatchObject({
      notCrossed: undefined,
      quarantined: [{ offset: 46, resolved: { how: 'dropped', by: 48 } }],
    });
  });

  test.each(['plant', 'enterprise'] as const)(
    'BND-10: a fact that was changed in the database of the %s is named',
    async (at) => {
      const zones = await crossed();
      await tamper(at, 33, zones);
      const side = at === 'plant' ? 'source' : 'receiver';
      const { tampered, isInAgreement } = await zones.reconcile();
      expect(isInAgreement).toBe(false);
      expect(tampered).toMatchObject([
        { side, offset: 33, messageId: 'm33', what: expect.stringContaining('chain hash does not follow') },
      ]);
      // Its chain hash computed anew, as somebody would who knows how: the receipts tell.
      await zones[at].database.query(
        `with recursive fixed as (
         select e.stream, e."offset", e.chain from tallyman.log_entries e where e."offset" = 32
         union all
         select e.stream, e."offset",
                sha256(f.chain || int8send(e."offset") || e.digest || sha256(convert_to(e.payload::text, 'UTF8'))
                       || convert_to(e.key, 'UTF8'))
           from fixed f join tallyman.log_entries e on e.stream = f.stream and e."offset" = f."offset" + 1)
       update tallyman.log_entries e set chain = f.chain from fixed f
        where e.stream = f.stream and e."offset" = f."offset"`,
      );
      const again = await zones.reconcile();
      expect(again.tampered).toMatchObject([{ side, offset: 33, messageId: 'm33' }]);
      expect(again.tampered[0]?.what).toContain('was signed for');
      if (at === 'plant') expect(again.problems.join('\n')).toContain('facts up to 40 were changed');
    },
  );

  test('BND-10: behind an offset only what lies there is asked for and judged', async () => {
    const zones = await crossed();
    const { enterprise, options } = zones;
    await tamper('enterprise', 10, zones);
    await tamper('enterprise', 33, zones);
    const { peer, isGenuine } = options;
    const asked: number[] = [];
    const noting: typeof peer = {
      ...peer,
      listCrossings: (request, more) => {
        asked.push(Number(request.afterOffset));
        return peer.listCrossings(request, more);
      },
      listProofs: (request, more) => {
        asked.push(Number(request.afterOffset));
        return peer.listProofs(request, more);
      },
    };
    const records = vi.spyOn(enterprise.store, 'quarantined');
    await peer.listCrossings({ stream: { fromZone: 'plant-a', toZone: 'enterprise' } });
    expect(records).not.toHaveBeenCalled();
    const behind = (after: number) =>
      reconcileWithPeer({ store: zones.plant.store, stream: out, peer: noting, isGenuine, signal, after });
    expect(await behind(20)).toMatchObject({
      crossed: [
        { from: 21, to: 40 },
        { from: 41, to: 46 },
      ],
      quarantined: [{ offset: 46 }],
      problems: [],
      tampered: [{ side: 'receiver', offset: 33 }],
    });
    expect(Math.min(...asked)).toBe(19);
    // Also in the middle of what a receipt covers.
    expect(await behind(35)).toMatchObject({
      crossed: [{ to: 40 }, { to: 46 }],
      isInAgreement: true,
      equal: 11,
    });
  });

  test('BND-10: the receiver reconciles as well; forged receipts are named', async () => {
    const zones = await pulling();
    const { enterprise, plant, append, pull, options } = zones;
    for (let n = 1; n <= 30; n++) await append(`m${n}`, n);
    await pull();
    await pull();
    const isGenuine = (receipt: Parameters<typeof isSignedBy>[0]) =>
      isSignedBy(receipt, enterprise.publicKey);
    const reconcile = () =>
      reconcileWithPeer({ store: enterprise.store, stream: into, peer: options.peer, isGenuine, signal });
    expect(await reconcile()).toMatchObject({ isInAgreement: true, equal: 30, copied: 0 });
    await plant.database.query(
      'update boundary.receipts set received_at = received_at + 1 where to_offset = 20',
    );
    const { problems, isInAgreement } = await reconcile();
    expect(isInAgreement).toBe(false);
    expect(problems).toEqual(['the receipt for offsets 1 to 20 is not signed by the receiver']);
  });
});
