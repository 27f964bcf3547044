import { z } from 'zod';
import { TallymanError } from '../engine/errors.ts';

/** A type of event that a component emits. */
export interface EventType {
  /** `rfid.movement`. Its first segment is reserved for the component. */
  readonly type: string;
  /** When it happens, in a sentence. */
  readonly summary: string;
  readonly aggregateType: string;
  /** Of the payload. */
  readonly schema: z.ZodType;
}

export const defineEventType = (type: EventType): EventType => type;

/** Every type that the components emit, in alphabetical order. */
export class EventCatalogue {
  readonly types: readonly EventType[];
  readonly #reserved: ReadonlySet<string>;

  constructor(types: readonly EventType[]) {
    this.types = [...types].sort((a, b) => (a.type < b.type ? -1 : 1));
    for (const [i, { type }] of this.types.entries())
      if (type === this.types[i - 1]?.type) throw new Error(`event type "${type}" is declared twice`);
    this.#reserved = new Set(types.map(({ type }) => firstSegment(type)));
  }

  /** Users may not emit the types of components: a forged `job.dead_letter` must not look real. */
  requireFree(type: string): void {
    const prefix = firstSegment(type);
    if (this.#reserved.has(prefix))
      throw new TallymanError(
        'BAD_OPTION',
        `event types that begin with "${prefix}." are emitted by Tallyman itself; choose another first word for "${type}"`,
      );
  }
}

const firstSegment = (type: string): string => type.split('.', 1)[0] ?? type;

/** As JSON Schema, for readers of the catalogue outside of this process. */
export const payloadSchema = ({ schema }: EventType): Readonly<Record<string, unknown>> =>
  z.toJSONSchema(schema, { target: 'draft-2020-12' });
