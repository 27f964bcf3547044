import { expect, test } from 'vitest';
import { rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { requestItemVersion } from '../../../src/apps/passports/write/versions.ts';
import { activeSample, made, passportServer } from './api.ts';
import { changeIn, testMeans } from './support.ts';

test('BPC-11, BPC-13: a step that a version cannot take is refused, with its code and what to do, and enqueues nothing', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const { rulesId, passportId, versionId: first } = await activeSample(test, ask);
  const versionUrl = (id: string) => `/v1/passports/versions/${id}`;
  const refused = async (path: string, body?: unknown) => {
    const answer = await ask('POST', path, body);
    return { status: answer.status, code: answer.body.error?.code, message: answer.body.error?.message };
  };
  const steps = () =>
    test.rows(`select (select count(*) from tallyman.history) + (select count(*) from tallyman.jobs) as jobs,
                      (select count(*) from passports.audit_events) as events`);

  // One that counts already stays as it is.
  expect((await ask('POST', `${versionUrl(first)}/activate`)).status).toBe(202);
  await test.settle();
  expect(await made(ask('GET', versionUrl(first)))).toMatchObject({ state: 'ACTIVE', number: 1 });

  const request = { rules: rulePackage.id, issued_at: '2027-03-01T00:00:00Z' };
  const { version_id: second } = await made(
    ask('POST', `/v1/passports/items/${passportId}/versions`, request),
  );
  // Asked for by a build that is not here: its compile fails for good.
  const means = testMeans({ build: 'another' });
  const issue = newIssue(means, { rulesId, issuedAt: new Date('2027-03-02T00:00:00Z') });
  const unfinished = await changeIn(test.tallyman, 'default', means, (work) =>
    requestItemVersion(work, passportId, issue),
  );
  await test.settle();
  expect((await made(ask('GET', versionUrl(first)))).state).toBe('SUPERSEDED');
  const before = await steps();

  for (const [path, body] of [
    ['activate', undefined],
    ['revoke', { reason: 'wrong' }],
  ] as const) {
    expect(await refused(`${versionUrl(first)}/${path}`, body)).toEqual({
      status: 409,
      code: 'VERSION_ENDED',
      message: expect.stringMatching(
        /was superseded \(\d{4}-.*POST \/v1\/passports\/items\/[0-9a-f-]+\/versions/,
      ),
    });
    expect(await refused(`${versionUrl(unfinished ?? '')}/${path}`, body)).toEqual({
      status: 409,
      code: 'VERSION_NOT_SIGNED',
      message: expect.stringMatching(/BUILD_MISMATCH: .*tallyman jobs retry/),
    });
  }
  expect(await steps()).toEqual(before);

  // Revoked is for good: the same request again answers the same, another reason is refused.
  const revoke = `${versionUrl(second)}/revoke`;
  const revoked = await made(ask('POST', revoke, { reason: 'wrong status' }));
  expect(revoked).toMatchObject({ state: 'REVOKED', reason: 'wrong status' });
  const after = await steps();
  expect(await made(ask('POST', revoke, { reason: 'wrong status' }))).toEqual(revoked);
  expect(await refused(revoke, { reason: 'another' })).toMatchObject({ status: 409, code: 'VERSION_ENDED' });
  expect(await refused(`${versionUrl(second)}/activate`)).toEqual({
    status: 409,
    code: 'VERSION_ENDED',
    message: expect.stringMatching(
      /was revoked \(.*wrong status\): it never counts again.*tallyman passports compile/,
    ),
  });
  expect(await made(ask('GET', versionUrl(second)))).toEqual(revoked);
  expect(await steps()).toEqual(after);

  // Signed late, after a newer one has counted: it would stay SIGNED without a word.
  const third = await made(
    ask('POST', `/v1/passports/items/${passportId}/versions`, {
      ...request,
      issued_at: '2027-04-01T00:00:00Z',
    }),
  );
  await test.settle();
  expect((await made(ask('GET', versionUrl(third.version_id)))).state).toBe('ACTIVE');
  await test.tallyman.database.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    await tx.query(
      `update passports.versions set state = 'SIGNED', active_at = null, ended_at = null where id = $1`,
      [first],
    );
  });
  expect(await refused(`${versionUrl(first)}/activate`)).toEqual({
    status: 409,
    code: 'CONFLICT',
    message: expect.stringMatching(/a passport does not go back\. Request a new version/),
  });

  // The end of the passport itself.
  const item = `/v1/passports/items/${passportId}`;
  const ceased = await made(ask('POST', `${item}/cease`, { reason: 'recycled' }));
  const last = await steps();
  expect(await made(ask('POST', `${item}/cease`, { reason: 'recycled' }))).toEqual(ceased);
  for (const [path, body] of [
    [`${item}/cease`, { reason: 'lost' }],
    [`${item}/status`, { status: 'reused' }],
    [`${item}/versions`, request],
    [`${item}/events`, { type: 'cycles', occurred_at: '2028-01-01T00:00:00Z', data: {} }],
    [`${versionUrl(first)}/activate`, undefined],
  ] as const)
    expect({ path, ...(await refused(path, body)) }).toMatchObject({
      path,
      status: 409,
      code: 'PASSPORT_CEASED',
      message: expect.stringContaining('has ceased'),
    });
  expect(await steps()).toEqual(last);
});
