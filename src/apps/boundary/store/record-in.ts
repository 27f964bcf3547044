import { TallymanError } from '../../../engine/errors.ts';
import type { FactRecord, GapRecord } from '../domain/record.ts';

/** A record as a log gives it. Whether its content is what was appended is for the chain hash to say. */
export function recordIn(payload: unknown, where: string): FactRecord | GapRecord {
  if (payload === null || typeof payload !== 'object')
    throw new TallymanError('LOG_DAMAGED', `the record of the entry ${where} is not a JSON object`);
  return payload as FactRecord | GapRecord;
}
