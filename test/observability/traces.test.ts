import {
  context,
  createTraceState,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { drained, engine, until } from '../support/engine.ts';

const exporter = new InMemorySpanExporter();
const named = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);

function setUp(sampler?: Sampler): void {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({
      spanProcessors: [new SimpleSpanProcessor(exporter)],
      ...(sampler && { sampler }),
    }),
  );
}

afterEach(() => {
  exporter.reset();
  trace.disable();
  context.disable();
  propagation.disable();
});

/** Runs `work` as if it were a request, and answers its span. */
async function inRequest(work: () => Promise<unknown>): Promise<Span> {
  const span = trace.getTracer('test').startSpan('request');
  await context.with(trace.setSpan(ROOT_CONTEXT, span), work);
  span.end();
  return span;
}

const only = (spans: ReadableSpan[]): ReadableSpan => {
  expect(spans).toHaveLength(1);
  return spans[0] as ReadableSpan;
};
const traceOf = (span: ReadableSpan) => span.spanContext().traceId;
const idOf = (span: ReadableSpan | Span) => span.spanContext().spanId;

describe('from enqueue to handler', () => {
  test('the request, its send and the handler are one trace, each the parent of the next', async () => {
    setUp();
    const bundle = await engine();
    let active: Span | undefined;
    const kind = defineKind<unknown>({
      name: 'greet',
      queue: 'greetings',
      handler: async () => {
        await Promise.resolve();
        active = trace.getActiveSpan();
      },
    });
    await bundle.work({ kinds: [kind] });
    let id = '';
    const request = await inRequest(async () => {
      id = (await bundle.tallyman.enqueue(kind, {})).id;
    });
    await until('it has run', () => named('process greet').length > 0);
    const send = only(named('send greet'));
    const process = only(named('process greet'));
    expect(send.kind).toBe(SpanKind.PRODUCER);
    expect(send.parentSpanContext?.spanId).toBe(idOf(request));
    expect(process.kind).toBe(SpanKind.CONSUMER);
    expect(process.parentSpanContext).toMatchObject({ spanId: idOf(send), isRemote: true });
    expect(traceOf(process)).toBe(request.spanContext().traceId);
    expect(active?.spanContext().spanId).toBe(idOf(process));
    expect(process.status.code).toBe(SpanStatusCode.UNSET);
    expect(process.attributes).toMatchObject({
      'messaging.system': 'tallyman',
      'messaging.destination.name': 'greetings',
      'messaging.operation.type': 'process',
      'tallyman.kind': 'greet',
      'tallyman.job.id': id,
      'tallyman.attempt': 1,
    });
    expect(send.attributes).toMatchObject({
      'messaging.destination.name': 'greetings',
      'messaging.operation.type': 'send',
    });
  });

  test('a job enqueued in a handler goes on with the trace; one without a request begins one', async () => {
    setUp();
    const bundle = await engine();
    const second = defineKind<unknown>({ name: 'second', handler: () => {} });
    const third = defineKind<unknown>({ name: 'third', handler: () => {} });
    const first = defineKind<unknown>({
      name: 'first',
      handler: async (_, ctx) => {
        await ctx.enqueue(second, {});
        await bundle.tallyman.enqueueMany(third, [{ payload: {} }, { payload: {} }]);
      },
    });
    await bundle.work({ kinds: [first, second, third] });
    await bundle.tallyman.enqueue(first, {});
    await until('all have run', () => named('process second').length + named('process third').length === 3);
    const begun = only(named('send first'));
    expect(begun.parentSpanContext).toBeUndefined();
    const parent = only(named('process first'));
    for (const name of ['send second', 'send third'])
      expect(only(named(name)).parentSpanContext?.spanId).toBe(idOf(parent));
    expect(only(named('send third')).attributes['messaging.batch.message_count']).toBe(2);
    for (const span of exporter.getFinishedSpans()) expect(traceOf(span)).toBe(traceOf(begun));
  });

  test('in a lane, with a retry: a span for each attempt, failed ones marked', async () => {
    setUp();
    const bundle = await engine();
    const kind = defineKind<{ n: number }>({
      name: 'step',
      retry: { maxAttempts: 3, backoff: () => 1 },
      handler: ({ n }, { attempt }) => {
        if (n === 1 && attempt < 3) throw new Error(`attempt ${attempt}`);
      },
    });
    const requests: Span[] = [];
    for (const n of [1, 2])
      requests.push(
        await inRequest(() => bundle.tallyman.enqueue(kind, { n }, { lane: 'a', dedupeKey: `${n}` })),
      );
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    const attempts = named('process step');
    expect(attempts.map((span) => span.attributes['tallyman.attempt'])).toEqual([1, 2, 3, 1]);
    expect(attempts.map(traceOf)).toEqual([0, 0, 0, 1].map((i) => requests[i]?.spanContext().traceId));
    expect(attempts.map((span) => span.status.code)).toEqual([
      SpanStatusCode.ERROR,
      SpanStatusCode.ERROR,
      SpanStatusCode.UNSET,
      SpanStatusCode.UNSET,
    ]);
    expect(attempts[0]?.status.message).toBe('attempt 1');
    expect(attempts[0]?.events.map((event) => event.name)).toEqual(['exception']);
  });

  test('through the transaction of a caller; in ctx.commit the span is the handler’s', async () => {
    setUp();
    const bundle = await engine();
    let inCommit: Span | undefined;
    const next = defineKind<unknown>({ name: 'next', handler: () => {} });
    const kind = defineKind<unknown>({
      name: 'book',
      handler: (_, ctx) =>
        ctx.commit(async (tx) => {
          await tx.query('select 1');
          inCommit = trace.getActiveSpan();
          await ctx.enqueue(next, {}, { tx });
        }),
    });
    const request = await inRequest(() =>
      bundle.tallyman.database.transaction((tx) => bundle.tallyman.enqueue(kind, {}, { tx })),
    );
    await bundle.work({ kinds: [kind, next] });
    await until('both have run', () => named('process next').length > 0);
    expect(inCommit?.spanContext().spanId).toBe(idOf(only(named('process book'))));
    expect(traceOf(only(named('process next')))).toBe(request.spanContext().traceId);
  });

  test('a handler that outlives its time, and a payload that is refused, end their spans as failed', async () => {
    setUp();
    const bundle = await engine();
    const slow = defineKind<unknown>({
      name: 'slow',
      timeoutMs: 50,
      retry: { maxAttempts: 1 },
      handler: () => new Promise(() => {}),
    });
    const fussy = defineKind<unknown>({
      name: 'fussy',
      schema: {
        '~standard': {
          version: 1,
          vendor: 'test',
          validate: (value: unknown) =>
            value === 'fine' ? { value } : { issues: [{ message: 'not fine' }] },
        },
      },
      handler: () => {},
    });
    await bundle.tallyman.enqueue(slow, {});
    await bundle.tallyman.enqueue({ ...fussy, schema: undefined }, 'bad');
    await bundle.work({ kinds: [slow, fussy] });
    await until('both have ended', () => named('process slow').length + named('process fussy').length === 2);
    expect(only(named('process slow')).status).toMatchObject({ message: 'ran longer than 50 ms' });
    expect(only(named('process fussy')).status.code).toBe(SpanStatusCode.ERROR);
  });

  test('an enqueue that is refused says so in its span', async () => {
    setUp();
    const bundle = await engine();
    const kind = defineKind<unknown>({ name: 'k', handler: () => {} });
    await expect(bundle.tallyman.enqueue(kind, {}, { delayMs: -1 })).rejects.toThrow();
    expect(only(named('send k')).status.code).toBe(SpanStatusCode.ERROR);
  });
});

describe('what a job carries', () => {
  const kind = defineKind<unknown>({ name: 'k', handler: () => {} });
  const remote = {
    traceId: '0af7651916cd43dd8448eb211c80319c',
    spanId: 'b7ad6b7169203331',
    traceFlags: TraceFlags.SAMPLED,
  };
  const carried = (bundle: Awaited<ReturnType<typeof engine>>) =>
    bundle.rows<{ trace: string | null }>('select trace from tallyman.jobs order by id');

  test('without a provider and without a span: nothing', async () => {
    const bundle = await engine();
    await bundle.tallyman.enqueue(kind, {});
    await bundle.tallyman.enqueue(kind, {}, { lane: 'a' });
    await bundle.tallyman.enqueueMany(kind, [{ payload: {} }]);
    expect(await carried(bundle)).toEqual([{ trace: null }, { trace: null }, { trace: null }]);
  });

  test('without a provider, in a span that was handed in: that one, with a tracestate if it is short', async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    const bundle = await engine();
    for (const state of ['vendor=1', `vendor=${'x'.repeat(250)}`]) {
      const traceState = createTraceState(state);
      await context.with(trace.setSpanContext(ROOT_CONTEXT, { ...remote, traceState }), () =>
        bundle.tallyman.enqueue(kind, {}),
      );
    }
    const parent = `00-${remote.traceId}-${remote.spanId}-01`;
    expect(await carried(bundle)).toEqual([{ trace: `${parent} vendor=1` }, { trace: parent }]);
  });

  test('that it is not to be recorded is carried, too', async () => {
    setUp(new ParentBasedSampler({ root: new AlwaysOffSampler() }));
    const bundle = await engine();
    await bundle.tallyman.enqueue(kind, {});
    const [row] = await carried(bundle);
    expect(row?.trace).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  test('SQL hands one in; what is not a trace begins one', async () => {
    setUp();
    const bundle = await engine();
    await bundle.rows(`select tallyman.register_kind('k')`);
    const good = `00-${remote.traceId}-${remote.spanId}-01`;
    for (const text of [`${good} vendor=1`, 'nonsense', `00-${'0'.repeat(32)}-${remote.spanId}-01`])
      await bundle.rows(`select tallyman.enqueue('k', trace => $1)`, [text]);
    await expect(bundle.rows(`select tallyman.enqueue('k', trace => repeat('x', 513))`)).rejects.toThrow(
      /at most 512 bytes/,
    );
    await bundle.work({ kinds: [kind], concurrency: 1 });
    await drained(bundle);
    const [first, second, third] = named('process k');
    expect(first?.parentSpanContext).toMatchObject({ traceId: remote.traceId, spanId: remote.spanId });
    expect(first?.spanContext().traceState?.get('vendor')).toBe('1');
    expect([second?.parentSpanContext, third?.parentSpanContext]).toEqual([undefined, undefined]);
  });
});
