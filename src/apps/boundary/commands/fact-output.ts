/** Facts as JSON, and as lines for people. */
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import { isGap } from '../domain/record.ts';
import type { StoredEntry } from '../store/store.ts';

/** Names as in the proto file; the object as JSON. */
export function factJson({ offset, record, appendedAt }: StoredEntry): Readonly<Record<string, unknown>> {
  if (isGap(record))
    return {
      offset,
      gap: { reason: record.gap.reason, message: record.gap.message, message_id: record.gap.messageId },
      stored_at: appendedAt.toISOString(),
    };
  const { reference } = record;
  return {
    offset,
    message_id: record.messageId,
    from_zone: record.from,
    to_zone: record.to,
    accepted_at: new Date(record.acceptedAt).toISOString(),
    produced_at: new Date(record.producedAt).toISOString(),
    correlation_id: record.correlationId ?? null,
    causation_id: record.causationId ?? null,
    labels: record.labels ?? {},
    subject: record.subject,
    predicate: record.predicate,
    object: JSON.parse(record.object),
    object_ref: reference
      ? {
          bucket: reference.bucket,
          key: reference.key,
          digest: reference.digest,
          size: reference.size ?? null,
          media_type: reference.mediaType ?? null,
          file_name: reference.fileName ?? null,
        }
      : null,
    stored_at: appendedAt.toISOString(),
  };
}

const subjectOf = ({ record }: StoredEntry): string => (isGap(record) ? '(gap)' : record.subject);
const predicateOf = ({ record }: StoredEntry): string =>
  isGap(record) ? record.gap.reason : record.predicate;
const objectOf = ({ record }: StoredEntry): string => (isGap(record) ? record.gap.message : record.object);
const messageIdOf = ({ record }: StoredEntry): string =>
  isGap(record) ? record.gap.messageId : record.messageId;

export const factsTable = (entries: readonly StoredEntry[], now: Date): string =>
  table<StoredEntry>(
    [
      { title: 'OFFSET', value: ({ offset }) => offset, right: true },
      { title: 'SUBJECT', value: subjectOf, shrinkTo: 12 },
      { title: 'PREDICATE', value: predicateOf, shrinkTo: 10 },
      { title: 'OBJECT', value: objectOf, shrinkTo: 12 },
      { title: 'MESSAGE ID', value: messageIdOf, shrinkTo: 10 },
      { title: 'STORED', value: ({ appendedAt }) => relativeTime(appendedAt, now), leaveOut: 1 },
    ],
    entries,
    terminalWidth(),
  );

/** One line, for facts that come one by one. */
export const factLine = (entry: StoredEntry): string =>
  [entry.offset, subjectOf(entry), predicateOf(entry), objectOf(entry), messageIdOf(entry)].join('  ');
