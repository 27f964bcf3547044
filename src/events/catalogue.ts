import { z } from 'zod';
import { TallymanError } from '../engine/errors.ts';

/** A kind of event that a part of the product emits. */
export interface EventType {
  /** `rfid.movement`. Its first segment is reserved for the part. */
  readonly type: string;
  /** When it happens, in a sentence. */
  readonly summary: string;
  readonly aggregateType: string;
  /** Of the payload. */
  readonly schema: z.ZodType;
}

export const defineEventType = (type: EventType): EventType => type;

/** Every type that the parts emit, in alphabetical order. */
export class EventCatalogue {
  readonly types: readonly EventType[];
  readonly #reserved: ReadonlySet<string>;

  constructor(types: readonly EventType[]) {
    this.types = [...types].sort((a, b) => (a.type < b.type ? -1 : 1));
    for (const [i, { type }] of this.types.entries())
      if (type === this.types[i - 1]?.type) throw new Error(`event type "${type}" is declared twice`);
    this.#reserved = new Set(types.map(({ type }) => firstSegment(type)));
  }

  /** Users may emit what no part could: nobody is to believe that a job died because somebody said so. */
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

/** As JSON Schema, for those who read the catalogue from outside. */
export const payloadSchema = ({ schema }: EventType): Readonly<Record<string, unknown>> =>
  z.toJSONSchema(schema, { target: 'draft-2020-12' });
