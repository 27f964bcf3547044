import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { HeavyRequests } from '../../src/server/access/heavy-requests.ts';
import { lineOf } from '../../src/server/access/lines.ts';
import { RecentTenants } from '../../src/server/access/recent-tenants.ts';
import { until } from '../support/until.ts';

/** As far as turns look at one. */
class Response extends EventEmitter {
  destroyed = false;

  leave(): void {
    this.destroyed = true;
    this.emit('close');
  }
}

const asResponse = (response: Response) => response as unknown as ServerResponse;

/** What waits has come as far as it can. */
const settled = async (): Promise<void> => {
  for (let i = 0; i < 10; i += 1) await new Promise(setImmediate);
};

function scene() {
  let now = 0;
  const recent = new RecentTenants(() => now);
  const heavy = new HeavyRequests(recent, { atOnce: 3, waiting: 10, percent: 100 });
  const began: string[] = [];
  const enter = (name: string): Response => {
    const response = new Response();
    const line = name.slice(0, 1);
    recent.note(line);
    void heavy.enter({ line, response: asResponse(response) }).then((isThere) => {
      if (isThere) began.push(name);
    });
    return response;
  };
  const leave = async (response: Response): Promise<void> => {
    heavy.leave(asResponse(response));
    await settled();
  };
  return { recent, heavy, began, enter, leave, pass: (ms: number) => (now += ms) };
}

test('SEC-5: a tenant that is alone has several large requests at once; beside another one it has one', async () => {
  const { recent, began, enter, leave, pass } = scene();
  const alone = ['a1', 'a2', 'a3', 'a4'].map(enter);
  await settled();
  expect(began).toEqual(['a1', 'a2', 'a3']);
  enter('b1');
  await settled();
  expect(began).toEqual(['a1', 'a2', 'a3', 'b1']);
  for (const response of alone.slice(0, 2)) await leave(response);
  expect(began).toHaveLength(4);
  await leave(alone[2] as Response);
  expect(began.at(-1)).toBe('a4');
  enter('a5');
  await settled();
  expect(began).toHaveLength(5);
  // The other one has gone.
  pass(5_001);
  recent.note('a');
  await leave(alone[3] as Response);
  enter('a6');
  await settled();
  expect(began.slice(5)).toEqual(['a5', 'a6']);
});

test('SEC-5: between two large requests the event loop goes round, so that others come in between', async () => {
  const { recent, heavy } = scene();
  recent.note('b');
  recent.note('a');
  const order: string[] = [];
  const responses = Array.from({ length: 3 }, () => asResponse(new Response() as Response));
  const all = responses.map(async (response, i) => {
    await heavy.enter({ line: 'a', response });
    order.push(`a${i}`);
    setImmediate(() => order.push('others'));
    heavy.leave(response);
  });
  await Promise.all(all);
  expect(order.slice(0, 5)).toEqual(['a0', 'others', 'a1', 'others', 'a2']);
});

test('SEC-5: a caller that goes away gives its turn back, but not in the middle of its work', async () => {
  const { recent, heavy, began, enter } = scene();
  recent.note('b');
  const [first, second] = [enter('a1'), enter('a2')];
  enter('a3');
  await settled();
  second.leave();
  first.leave();
  await settled();
  expect(began).toEqual(['a1', 'a3']);
  const working = enter('b1');
  await settled();
  await heavy.handle({ line: 'b', response: asResponse(working) }, 'x');
  enter('b2');
  working.leave();
  await settled();
  expect(began).toEqual(['a1', 'a3', 'b1']);
  heavy.leave(asResponse(working));
  heavy.leave(asResponse(working));
  await settled();
  expect(began).toEqual(['a1', 'a3', 'b1', 'b2']);
});

test('SEC-5: a route whose last answer was large takes turns until one is small', async () => {
  const { recent, heavy } = scene();
  recent.note('b');
  recent.note('a');
  let handled = 0;
  const handle = (): ServerResponse => {
    const response = asResponse(new Response());
    void heavy.handle({ line: 'a', response }, 'jobs.list').then(() => {
      handled += 1;
    });
    return response;
  };
  for (let i = 0; i < 3; i += 1) handle();
  await settled();
  expect(handled).toBe(3);
  heavy.answered('a', 'jobs.list', 100_000);
  const [first] = [handle(), handle()];
  await settled();
  expect(handled).toBe(4);
  heavy.answered('a', 'jobs.list', 100);
  handle();
  await settled();
  expect(handled).toBe(5);
  heavy.leave(first as ServerResponse);
  await settled();
  expect(handled).toBe(6);
});

test("SEC-5: large requests of strangers take fewer turns than those of a tenant, and what they are answered says nothing of the tenant's answers", async () => {
  const { heavy, enter, leave } = scene();
  const strangers = lineOf({ tenantId: 'a', role: 'public' });
  const first = asResponse(new Response());
  let entered = 0;
  for (const response of [first, asResponse(new Response())])
    void heavy.enter({ line: strangers, response }).then(() => {
      entered += 1;
    });
  await settled();
  expect(entered).toBe(1);
  const [own] = [enter('a1'), enter('a2'), enter('a3')];
  await settled();
  heavy.answered(strangers, 'x', 100_000);
  const other = asResponse(new Response());
  // At once, although all turns are taken: the tenant's own answers were small.
  await heavy.handle({ line: 'a', response: other }, 'x');
  await leave(own);
  heavy.leave(first);
  await until('the next stranger has its turn', () => entered === 2);
});
