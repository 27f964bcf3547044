/**
 * Whether a record that a peer delivers is one that a node could have written: readers rely on that, and one record that they cannot
 * read would keep all that is behind it from them. Members that are not known here are left alone: later nodes may write more.
 */
import { BoundaryError, invalid } from './errors.ts';
import { checkLabels, checkPredicate, checkSubject, factLimits, isTime } from './fact.ts';
import { canonicalText } from './json.ts';
import { referenceOf } from './object-reference.ts';
import type { FactRecord } from './record.ts';
import { requireToken } from './text.ts';

type Unchecked = { readonly [member in keyof FactRecord | 'gap']?: unknown };

/** What is wrong with it; undefined: nothing. Zones and version are not looked at. */
export function recordProblem(record: object): string | undefined {
  try {
    check(record);
    return undefined;
  } catch (error) {
    if (!(error instanceof BoundaryError)) throw error;
    // It is kept and shown, and may quote what was delivered.
    return error.message.replace(/\p{Cc}/gu, '\ufffd').toWellFormed();
  }
}

/** The limits of `checkFact`. The object's is that of the record: canonical JSON may be longer than what was sent. */
function check(record: Unchecked): void {
  if (record.gap !== undefined) throw invalid('gap', 'is there: the record of a fact has none');
  checkToken(record.messageId, 'messageId');
  for (const member of ['acceptedAt', 'producedAt'] as const)
    if (!isTime(record[member])) throw invalid(member, 'must be milliseconds since 1970');
  if (record.correlationId !== undefined) checkToken(record.correlationId, 'correlationId');
  if (record.causationId !== undefined) checkToken(record.causationId, 'causationId');
  if (record.labels !== undefined) checkLabels(textsOf(record.labels, 'labels'));
  checkSubject(textOf(record.subject, 'subject'), 'subject');
  checkPredicate(textOf(record.predicate, 'predicate'), 'predicate');
  const object = textOf(record.object, 'object');
  if (canonicalText(object, 'object') !== object) throw invalid('object', 'is not canonical JSON');
  if (record.reference !== undefined) referenceOf(record.reference, 'reference');
  checkOrigin(record);
}

function checkOrigin({ standsFor, formerIds }: Unchecked): void {
  if (standsFor !== undefined) {
    const { epoch, offset, messageId } = objectOf(standsFor, 'standsFor');
    checkToken(epoch, 'standsFor.epoch');
    checkToken(messageId, 'standsFor.messageId');
    if (!Number.isSafeInteger(offset)) throw invalid('standsFor.offset', 'must be an offset');
  }
  if (formerIds === undefined) return;
  if (!Array.isArray(formerIds)) throw invalid('formerIds', 'must be a list of message ids');
  for (const id of formerIds) checkToken(id, 'formerIds');
}

const checkToken = (value: unknown, field: string): void =>
  requireToken(textOf(value, field), field, factLimits.messageIdBytes);

function textOf(value: unknown, field: string): string {
  if (typeof value !== 'string') throw invalid(field, value === undefined ? 'is missing' : 'must be a text');
  return value;
}

function textsOf(value: unknown, field: string): Readonly<Record<string, string>> {
  const object = objectOf(value, field);
  for (const [name, text] of Object.entries(object))
    textOf(text, `${field}[${JSON.stringify(name.slice(0, 200))}]`);
  return object as Readonly<Record<string, string>>;
}

function objectOf(value: unknown, field: string): Readonly<Record<string, unknown>> {
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    throw invalid(field, 'must be a JSON object');
  return value as Readonly<Record<string, unknown>>;
}
