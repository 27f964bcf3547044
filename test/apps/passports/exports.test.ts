import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { verifyAudit } from '../../../src/apps/passports/audit/verify.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { verifyEnvelope } from '../../../src/apps/passports/export/envelope.ts';
import { verifyBundle } from '../../../src/apps/passports/export/verify-bundle.ts';
import { exportPassport } from '../../../src/apps/passports/jobs/kinds.ts';
import {
  exportBytes,
  exportFormatNames,
  findPassportOf,
  listExports,
  requireExport,
} from '../../../src/apps/passports/store/index.ts';
import { requestExport } from '../../../src/apps/passports/write/exports.ts';
import { appendItemEvent } from '../../../src/apps/passports/write/item-events.ts';
import { ceaseItem } from '../../../src/apps/passports/write/passports.ts';
import { revokeVersion } from '../../../src/apps/passports/write/version-steps.ts';
import { activeSample, made, passportServer } from './api.ts';
import { issuedAt, type PassportBundle, passports, putSample, runToEnd, testKeys } from './support.ts';

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const supplement = new URL('../../../examples/passports/catenax-supplement.json', import.meta.url);

test('BPC-1, BPC-16: over HTTP an export is requested, made by a job, listed and downloaded; the same request gives the same bytes', {
  timeout: 300_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const { key } = await test.keys.create({ tenantId: 'default', name: 'download', role: 'auditor' });
  const { passportId, versionId } = await activeSample(test, ask);
  const exportsUrl = `/v1/passports/versions/${versionId}/exports`;
  const download = async (id: string) => {
    const response = await fetch(`${test.url}/v1/passports/exports/${id}/content`, {
      headers: { authorization: `Bearer ${key}` },
    });
    return { response, bytes: Buffer.from(await response.arrayBuffer()) };
  };

  const asked = await ask('POST', exportsUrl, {});
  expect(asked).toMatchObject({
    status: 202,
    body: { version_id: versionId, format: 'bundle', reader: 'public', state: 'REQUESTED', existing: false },
  });
  await test.settle();
  const shown = await made(ask('GET', `/v1/passports/exports/${asked.body.id}`));
  expect(shown).toMatchObject({ state: 'READY', error: null, file_name: 'passport-SP100-000002.tar' });
  const { response, bytes } = await download(shown.id);
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/x-tar']);
  expect(response.headers.get('content-disposition')).toContain('passport-SP100-000002.tar');
  expect([sha256(bytes), bytes.length]).toEqual([shown.sha256, shown.size]);
  expect(verifyBundle(bytes, { keys: testKeys.publicKeys })).toMatchObject({ ok: true, keysFrom: 'reader' });
  // The link on the label gives the same bytes to the same reader.
  const linked = await fetch(`${test.url}/01/${product.gtin}/21/SP100-000002?format=bundle`);
  expect(sha256(Buffer.from(await linked.arrayBuffer()))).toBe(shown.sha256);

  const again = await made(ask('POST', exportsUrl, {}));
  expect(again).toEqual({ ...shown, existing: true });
  expect((await made(ask('GET', exportsUrl))).items).toEqual([shown]);
  expect((await made(ask('GET', '/v1/passports/exports'))).items).toEqual([shown]);

  // Individual data are none of the public's business; who may see them gets another export.
  const event = { type: 'cycles', occurred_at: '2028-01-01T00:00:00Z', data: { cycles: 12 } };
  const close = { format: 'json', reader: 'legitimate_interest' };
  const earlier = await made(ask('POST', exportsUrl, close));
  await made(ask('POST', `/v1/passports/items/${passportId}/events`, event));
  expect((await made(ask('POST', exportsUrl, {}))).id).toBe(shown.id);
  const later = await made(ask('POST', exportsUrl, close));
  expect(later.id).not.toBe(earlier.id);
  await test.settle();
  const eventsIn = async (id: string) =>
    (JSON.parse((await download(id)).bytes.toString('utf8')) as { events: unknown[] }).events.length;
  expect([await eventsIn(earlier.id), await eventsIn(later.id)]).toEqual([0, 1]);

  // Every form can be exported.
  const extra = JSON.parse(await readFile(supplement, 'utf8'));
  for (const format of exportFormatNames)
    await made(
      ask('POST', exportsUrl, {
        format,
        reader: 'owner',
        ...(format === 'catenax' && { supplement: extra }),
      }),
    );
  await test.settle();
  const { items } = await made(ask('GET', `${exportsUrl}?limit=200`));
  const owned = items.filter(({ reader }: { reader: string }) => reader === 'owner');
  expect(
    owned.map(({ format, state, error }: { format: string; state: string; error: unknown }) => [
      format,
      state,
      error,
    ]),
  ).toEqual(expect.arrayContaining(exportFormatNames.map((format) => [format, 'READY', null])));

  // What cannot be made says why; once more tries again.
  const lacking = { format: 'catenax', reader: 'owner' };
  const { id: failed } = await made(ask('POST', exportsUrl, lacking));
  await test.settle();
  expect(await made(ask('GET', `/v1/passports/exports/${failed}`))).toMatchObject({
    state: 'FAILED',
    sha256: null,
    error: { code: 'VALIDATION_ERROR', message: expect.stringContaining('economicOperatorId') },
  });
  expect(await ask('GET', `/v1/passports/exports/${failed}/content`)).toMatchObject({
    status: 409,
    body: { error: { code: 'EXPORT_NOT_READY', message: expect.stringContaining('request it again') } },
  });
  expect(await made(ask('POST', exportsUrl, lacking))).toMatchObject({
    id: failed,
    state: 'REQUESTED',
    error: null,
  });
  await test.settle();
  expect((await made(ask('GET', `/v1/passports/exports/${failed}`))).state).toBe('FAILED');

  // What has ended has no credential, and a new bundle that says so; the old one stays what it was.
  await made(ask('POST', `/v1/passports/versions/${versionId}/revoke`, { reason: 'wrong' }));
  expect(await ask('POST', exportsUrl, { format: 'jsonld' })).toMatchObject({
    status: 410,
    body: { error: { code: 'PASSPORT_NOT_ACTIVE' } },
  });
  expect(await ask('POST', exportsUrl, { label: '50x30' })).toMatchObject({
    status: 400,
    body: {
      error: { code: 'VALIDATION_ERROR', message: expect.stringContaining('label is for the format pdf') },
    },
  });
  const ended = await made(ask('POST', exportsUrl, {}));
  await test.settle();
  expect(ended.id).not.toBe(shown.id);
  expect(verifyBundle((await download(ended.id)).bytes).state).toBe('REVOKED');
  expect(sha256((await download(shown.id)).bytes)).toBe(shown.sha256);
});

/** One battery with an active version. */
async function battery(): Promise<
  PassportBundle & { readonly passportId: string; readonly versionId: string }
> {
  const bundle = await passports();
  await bundle.change((work) => putSample(work, bundle.means, 1));
  await runToEnd(bundle);
  const found = await findPassportOf(bundle.on, product.gtin, 'SP100-000001');
  return { ...bundle, passportId: found?.id ?? '', versionId: found?.activeVersionId ?? '' };
}

test('BPC-1, BPC-11: an export is what it was requested as, however late its job runs, and running the job again changes nothing', {
  timeout: 120_000,
}, async () => {
  const at = await battery();
  const { change, on, means, passportId, versionId, rows } = at;
  const request = { format: 'json', reader: 'owner', language: 'en' } as const;
  const { id } = await change((work) => requestExport(work, versionId, request));
  const early = await requireExport(on, id);
  await expect(exportBytes(on, early)).rejects.toMatchObject({
    code: 'EXPORT_NOT_READY',
    message: expect.stringContaining('ask again when its state is READY'),
  });
  // All of this happens before the job runs.
  await change((work) =>
    appendItemEvent(work, means.keys, passportId, {
      type: 'cycles',
      occurredAt: issuedAt,
      data: { cycles: 1 },
    }),
  );
  await change((work) => revokeVersion(work, versionId, 'wrong'));
  await change((work) => ceaseItem(work, passportId, 'recycled'));
  await runToEnd(at);
  const bytes = await exportBytes(on, await requireExport(on, id));
  const envelope = JSON.parse(Buffer.from(bytes).toString('utf8')) as { state: string; events: unknown[] };
  expect(envelope).toMatchObject({ state: 'ACTIVE', events: [] });
  expect(verifyEnvelope(Buffer.from(bytes).toString('utf8'), { keys: testKeys.publicKeys }).ok).toBe(true);
  await expect(change((work) => requestExport(work, versionId, request))).rejects.toMatchObject({
    code: 'PASSPORT_NOT_ACTIVE',
  });

  // The same job again.
  const events = await rows('select * from passports.audit_events order by position');
  const [{ payload } = { payload: null }] = await rows<{ payload: { exportId: string } }>(
    `select payload from tallyman.history where kind = 'passports.export-passport'`,
  );
  await at.tallyman.enqueue(exportPassport, payload as { exportId: string }, { tenantId: 'default' });
  await runToEnd(at);
  expect(await rows('select * from passports.audit_events order by position')).toEqual(events);
  expect((await listExports(on)).items).toMatchObject([{ id, state: 'READY', sha256: sha256(bytes) }]);
  expect((await verifyAudit(on, means.keys)).broken).toBeNull();
  await expect(rows(`update passports.exports set error = '{}'`)).rejects.toThrow(/never changed/);
});
