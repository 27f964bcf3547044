import {
  type Context,
  context,
  createTraceState,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { messageOf } from '../errors.ts';
import type { ClaimedJob } from './claim.ts';

/*
 * Traces from enqueue to handler, for those who have set OpenTelemetry up; see docs/decisions/0007. A job carries the
 * W3C traceparent of the enqueue and, behind a blank, its tracestate. Without a tracer provider the only
 * cost is a check for one.
 */

/** A longer tracestate is left behind; the trace is complete without it. */
const maxStateBytes = 256;

/** Undefined until a provider is registered. */
export function activeTracer(): Tracer | undefined {
  const provider: TracerProvider & { getDelegateTracer?: (name: string) => Tracer | undefined } =
    trace.getTracerProvider();
  // The API returns a proxy that always has a tracer; its delegate tells whether a provider is registered.
  return provider.getDelegateTracer ? provider.getDelegateTracer('tallyman') : provider.getTracer('tallyman');
}

/**
 * Runs an enqueue inside a span `send <kind>`, if anybody records spans. `send` is given what the job is to carry:
 * undefined when nobody is tracing.
 */
export function traceSend<T>(
  kind: string,
  queue: string,
  jobs: number,
  send: (carried: string | undefined) => Promise<T>,
): Promise<T> {
  const recorder = activeTracer();
  if (!recorder) {
    const active = trace.getActiveSpan();
    return send(active && written(active.spanContext()));
  }
  const span = recorder.startSpan(`send ${kind}`, {
    kind: SpanKind.PRODUCER,
    attributes: {
      'messaging.system': 'tallyman',
      'messaging.destination.name': queue,
      'messaging.operation.name': 'send',
      'messaging.operation.type': 'send',
      'tallyman.kind': kind,
      ...(jobs > 1 && { 'messaging.batch.message_count': jobs }),
    },
  });
  return context.with(trace.setSpan(context.active(), span), async () => {
    try {
      return await send(written(span.spanContext()));
    } catch (error) {
      markFailed(span, error);
      throw error;
    } finally {
      span.end();
    }
  });
}

/** One attempt, as a span `process <kind>`. Ended once, by what comes first: the handler, its timeout, the worker's stop. */
export class AttemptSpan {
  readonly context: Context;
  readonly #span: Span;
  #hasFailed = false;

  constructor(recorder: Tracer, job: ClaimedJob) {
    // Not the active context: that belongs to the call that made the worker look for work.
    const sender = job.trace === undefined ? undefined : read(job.trace);
    const parent = sender ? trace.setSpanContext(ROOT_CONTEXT, sender) : ROOT_CONTEXT;
    this.#span = recorder.startSpan(
      `process ${job.kind}`,
      {
        kind: SpanKind.CONSUMER,
        attributes: {
          'messaging.system': 'tallyman',
          'messaging.destination.name': job.claim.queue,
          'messaging.operation.name': 'process',
          'messaging.operation.type': 'process',
          'messaging.message.id': job.id,
          'tallyman.kind': job.kind,
          'tallyman.job.id': job.id,
          'tallyman.attempt': job.attempts + 1,
        },
      },
      parent,
    );
    this.context = trace.setSpan(parent, this.#span);
  }

  /** The first reason counts: a handler that is aborted usually throws the abort reason. */
  failed(thrown: unknown): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    markFailed(this.#span, thrown);
  }

  end(): void {
    this.#span.end();
  }
}

function markFailed(span: Span, thrown: unknown): void {
  const message = messageOf(thrown);
  span.recordException(thrown instanceof Error ? thrown : message);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function written(span: SpanContext): string | undefined {
  if (!isSpanContextValid(span)) return undefined;
  const parent = `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, '0')}`;
  const state = span.traceState?.serialize();
  return state && Buffer.byteLength(state) <= maxStateBytes ? `${parent} ${state}` : parent;
}

const carriedForm = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?: (.+))?$/;

/** SQL may enqueue with any text: what is not a trace is no trace. */
function read(carried: string): SpanContext | undefined {
  const [, traceId = '', spanId = '', flags = '', state] = carriedForm.exec(carried) ?? [];
  const found: SpanContext = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16),
    isRemote: true,
    ...(state && { traceState: createTraceState(state) }),
  };
  return isSpanContextValid(found) ? found : undefined;
}
