import type { Moment, Subject, SubjectPage, TenantQueries } from '../../host/timeline.ts';

interface FactRow {
  readonly subject: string;
  readonly predicate: string;
  readonly buffer: 'store' | 'forward';
  readonly from: string;
  readonly to: string;
  readonly offset: number;
  readonly messageId: string;
  readonly at: Date;
  /** When the other zone received it, by its receipt. */
  readonly crossedAt: number | null;
}

/** What became of `fact:MESSAGE-ID`, and facts about any other subject, such as `work_order:WO-1`. */
export async function momentsOf(
  on: TenantQueries,
  { type, id }: Subject,
  page: SubjectPage,
): Promise<readonly Moment[]> {
  if (type === 'fact')
    return [...(await factMoments(on, id)), ...(await quarantineMoments(on, id))].filter(isBefore(page));
  const rows = await factRows(on, 's.subject = $2', `${type}:${id}`, page);
  return rows.map(momentOf);
}

const isBefore =
  ({ before }: SubjectPage) =>
  ({ at }: Moment): boolean =>
    before === undefined || at < before.at;

async function factMoments(on: TenantQueries, messageId: string): Promise<Moment[]> {
  const rows = await factRows(on, 's.message_id = $2', messageId, { limit: 100 });
  return rows.flatMap((row): Moment[] => [
    momentOf(row),
    ...(row.crossedAt === null
      ? []
      : [
          {
            id: `${nameOf(row)}:crossed`,
            type: 'boundary.fact.crossed',
            at: new Date(row.crossedAt),
            text: `received by ${row.to}, as its receipt says`,
            details: detailsOf(row),
          },
        ]),
  ]);
}

/** Relies on subjects_of or subjects_message_id, and on receipts_pkey. */
async function factRows(
  on: TenantQueries,
  condition: string,
  value: string,
  { limit, before }: SubjectPage,
): Promise<FactRow[]> {
  const { rows } = await on.query<FactRow>(
    `select s.subject, s.predicate, s.buffer, s.from_zone as "from", s.to_zone as "to", s."offset"::float8 as "offset",
            s.message_id as "messageId", s.appended_at as at,
            (select r.received_at::float8 from boundary.receipts r
              where r.tenant_id = s.tenant_id and r.buffer = s.buffer and r.from_zone = s.from_zone
                and r.to_zone = s.to_zone and r.to_offset >= s."offset" and s.buffer = 'store'
              order by r.to_offset limit 1) as "crossedAt"
       from boundary.subjects s
      where s.tenant_id = $1 and ${condition} and ($3::timestamptz is null or s.appended_at < $3)
      order by s.appended_at desc limit $4`,
    [on.tenantId, value, before?.at ?? null, limit],
  );
  return rows;
}

function momentOf(row: FactRow): Moment {
  const isOut = row.buffer === 'store';
  return {
    id: nameOf(row),
    type: isOut ? 'boundary.fact.appended' : 'boundary.fact.received',
    at: row.at,
    text: `${row.subject} ${row.predicate}: fact ${row.offset} ${isOut ? `for ${row.to}` : `from ${row.from}`}`,
    details: detailsOf(row),
  };
}

const nameOf = ({ buffer, from, to, offset }: FactRow): string => `${buffer}/${from}/${to}/${offset}`;

const detailsOf = ({ messageId, from, to, offset, subject, predicate }: FactRow) => ({
  message_id: messageId,
  from_zone: from,
  to_zone: to,
  offset,
  subject,
  predicate,
});

/** Relies on quarantine_message_id. */
async function quarantineMoments(on: TenantQueries, messageId: string): Promise<Moment[]> {
  const { rows } = await on.query<{ id: string; at: Date; reason: string; message: string }>(
    `select concat_ws('/', q.buffer, q.from_zone, q.to_zone, q."offset", 'quarantined') as id, q.quarantined_at as at,
            q.reason, q.message
       from boundary.quarantine q where q.tenant_id = $1 and q.message_id = $2`,
    [on.tenantId, messageId],
  );
  return rows.map(({ id, at, reason, message }) => ({
    id,
    type: 'boundary.fact.quarantined',
    at,
    text: `in quarantine: ${message}`,
    details: { reason },
  }));
}

/** Facts whose message id begins with this text, and subjects that do. */
export async function factsLike(on: TenantQueries, text: string): Promise<readonly Subject[]> {
  const ids = await beginningWith(on, 'message_id', text);
  const subjects = await beginningWith(on, 'subject', text);
  return [
    ...ids.map((id) => ({ type: 'fact', id, title: `fact ${id}` })),
    ...subjects.map((subject) => {
      const colon = subject.indexOf(':');
      return { type: subject.slice(0, colon), id: subject.slice(colon + 1), title: subject };
    }),
  ];
}

const mostFound = 10;

/**
 * The first values that begin with this text, from one to the next along the index: a subject may have millions of facts.
 * Relies on subjects_message_id or subjects_of.
 */
async function beginningWith(
  on: TenantQueries,
  column: 'message_id' | 'subject',
  text: string,
): Promise<string[]> {
  const { rows } = await on.query<{ value: string }>(
    `with recursive found as (
       (select s.${column} as value from boundary.subjects s
         where s.tenant_id = $1 and s.${column} >= $2 order by s.${column} limit 1)
       union all
       select (select s.${column} from boundary.subjects s
                where s.tenant_id = $1 and s.${column} > f.value order by s.${column} limit 1)
         from found f where f.value ^@ $2)
     select f.value from found f where f.value ^@ $2 limit $3`,
    [on.tenantId, text, mostFound],
  );
  return rows.map(({ value }) => value);
}
