import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { made, passportServer } from './api.ts';

const material = (at: number) => ({
  type: 'material',
  key: `anode/m${at}`,
  payload: {
    component: 'anode',
    name: `m${at}`,
    cas: '',
    mass: { value: 1, scale: 0, unit: 'kg' },
    critical: [],
    hazardous: false,
  },
});

/** Each rule goes through a list in a list in a list: 130,000 steps. */
const packageOf = (version: string, count: number, expected = 1) => ({
  id: 'costly',
  version,
  rules: Array.from({ length: count }, (_, at) => ({
    field: `r${at}`,
    expression:
      'size(materials.map(a, size(materials.map(b, size(materials.filter(c, false)))))) > 0 ? 1 : 0',
    type: 'int',
    point: 1,
    granularity: 'model',
    categories: ['ev'],
    inForceFrom: '2027-02-18',
    early: 'withhold',
    onMissing: 'fail',
    article: 'Annex XIII',
  })),
  testCases: [
    {
      name: 'the only one',
      product,
      item: null,
      issuedAt: '2027-03-01T00:00:00Z',
      facts: Array.from({ length: 50 }, (_, at) => material(at)),
      expect: { r0: { status: 'value', value: expected } },
    },
  ],
});

/** While something runs: how long it took, the longest time that the event loop did nothing else, and transactions that wait. */
async function watched<T>(test: Awaited<ReturnType<typeof passportServer>>, run: () => Promise<T>) {
  const ended = run().then((result) => ({ result }));
  let longestMs = 0;
  let isDone = false;
  void ended.finally(() => {
    isDone = true;
  });
  const begunAt = performance.now();
  const looping = (async () => {
    for (let before = performance.now(); !isDone; ) {
      await sleep(1);
      const now = performance.now();
      longestMs = Math.max(longestMs, now - before);
      before = now;
    }
  })();
  let idle = 0;
  while (!isDone) {
    const found = await test.rows(
      `select 1 from pg_stat_activity
        where datname = current_database() and state = 'idle in transaction' and now() - state_change > interval '100 ms'`,
    );
    idle += found.length;
    await sleep(20);
  }
  await looping;
  const { result } = await ended;
  return { result, tookMs: performance.now() - begunAt, longestMs, idle };
}

test('SEC-5: a rule package is checked, tested and published beside other requests, and outside of the transaction', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const check = await watched(test, () =>
    ask('POST', '/v1/passports/rules/check', { package: packageOf('1.0.0', 30) }),
  );
  expect(check.result).toMatchObject({ status: 200, body: { ok: true, outcomes: [{ passed: true }] } });
  const { id } = await made(ask('POST', '/v1/passports/rules', { package: packageOf('1.0.0', 30) }));
  const tested = await watched(test, () => ask('POST', `/v1/passports/rules/${id}/test`));
  expect(tested.result).toMatchObject({ status: 200, body: { passed: true } });
  for (const { tookMs, longestMs, idle } of [check, tested]) {
    expect(idle).toBe(0);
    expect(longestMs).toBeLessThan(tookMs / 4);
  }
  expect(await made(ask('POST', `/v1/passports/rules/${id}/publish`))).toMatchObject({ state: 'PUBLISHED' });
  const { reports } = await made(ask('GET', `/v1/passports/rules/${id}`));
  expect(reports).toHaveLength(1);
});

test('SEC-5: a package that needs too many steps is refused with the case and the rule, and two requests at once are both answered', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const tooMany = packageOf('1.0.0', 60);
  const message = /^rule r\d+, in test case "the only one": the rules together need more than 5000000 steps/;
  const [first, second] = await Promise.all([
    ask('POST', '/v1/passports/rules/check', { package: tooMany }),
    ask('POST', '/v1/passports/rules/check', { package: packageOf('1.0.0', 1, 2) }),
  ]);
  expect(first).toMatchObject({
    status: 200,
    body: {
      ok: false,
      problems: [{ code: 'VALIDATION_ERROR', message: expect.stringMatching(message) }],
      outcomes: [],
    },
  });
  expect(second.body).toMatchObject({ ok: false, problems: [], outcomes: [{ passed: false }] });
  const { id } = await made(ask('POST', '/v1/passports/rules', { package: tooMany }));
  for (const verb of ['test', 'publish'])
    expect(await ask('POST', `/v1/passports/rules/${id}/${verb}`)).toMatchObject({
      status: 400,
      body: { error: { code: 'VALIDATION_ERROR', message: expect.stringMatching(message) } },
    });
  const broken = { ...packageOf('1.0.1', 1), testCases: [] };
  const draft = await made(
    ask('POST', '/v1/passports/rules', {
      package: { ...broken, rules: broken.rules.map((rule) => ({ ...rule, expression: '1 +' })) },
    }),
  );
  expect(await ask('POST', `/v1/passports/rules/${draft.id}/test`)).toMatchObject({
    status: 422,
    body: { error: { code: 'RULE_PARSE_ERROR' } },
  });
});
