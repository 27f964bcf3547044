import { z } from 'zod';

const share = z.number().min(0).max(1);
const range = z
  .object({ minMs: z.number().min(0).max(600_000), maxMs: z.number().min(0).max(600_000) })
  .refine(({ minMs, maxMs }) => minMs <= maxMs, 'minMs must not be above maxMs');

/**
 * How a call can go wrong. `429`, `500` and the other statuses are answers; `hang` never answers; `reset` breaks the
 * connection before anything was accepted; `lost` accepts and then breaks it, so that the caller cannot know.
 */
const faultKinds = ['429', '500', '503', 'hang', 'reset', 'lost'] as const;
const faultKind = z.enum([...faultKinds, '401', '403', '405', 'garbage', 'endless']);
export type FaultKind = z.infer<typeof faultKind>;

/** Settings that can also be changed while it runs: `PATCH /simulator/settings`. */
export const simulatorSettings = z.strictObject({
  /** How long an answer takes. */
  latency: range.default({ minMs: 0, maxMs: 0 }),
  /** Share of calls that go wrong, of each kind. */
  faults: z.partialRecord(faultKind, share).default({}),
  /** From accepted to shown. */
  shownAfter: range.default({ minMs: 0, maxMs: 0 }),
  /** Share of images that a label never gets: TIMEOUT. */
  labelTimeouts: share.default(0),
  /** What a 429 or 503 asks for. */
  retryAfter: z.enum(['none', 'seconds', 'date']).default('seconds'),
  retryAfterSeconds: z.number().int().min(0).max(3600).default(0),
  tokenSeconds: z.number().min(0.1).max(86_400).default(3600),
  /** Only these can log in, where given. */
  username: z.string().optional(),
  password: z.string().optional(),
  /** Accept unknown labels at their first image; otherwise refuse them. */
  takesAnyLabel: z.boolean().default(true),
});
export type SimulatorSettings = z.infer<typeof simulatorSettings>;
export type SimulatorSettingsInput = z.input<typeof simulatorSettings>;

/** The same share of each common kind: `0.05` is five calls of a hundred. */
export const evenFaults = (total: number): Partial<Record<FaultKind, number>> =>
  Object.fromEntries(faultKinds.map((kind) => [kind, total / faultKinds.length]));

/** Settings of one label: `PATCH /simulator/labels/{mac}`. Null removes one. */
export const labelSettings = z.strictObject({
  /** Every image for it goes wrong like this. */
  fault: faultKind.nullish(),
  /** It never shows what it is sent. */
  timesOut: z.boolean().nullish(),
  palette: z.enum(['bw', 'bwr', 'bwy']).nullish(),
});
export type LabelSettings = z.infer<typeof labelSettings>;
