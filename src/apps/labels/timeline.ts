import type { Moment, Subject, SubjectPage, TenantQueries } from '../../host/timeline.ts';

/** The history of `label:MAC`: when each of its pages was last wanted, accepted and shown. */
export async function momentsOf(
  on: TenantQueries,
  { type, id }: Subject,
  { limit, before }: SubjectPage,
): Promise<readonly Moment[]> {
  if (type !== 'label') return [];
  const { rows } = await on.query<{ id: string; what: string; at: Date; page: number }>(
    `select m.what || ':' || m.page || ':' || coalesce(m.job::text, '') as id, m.what, m.at, m.page
       from labels.labels l join labels.pages p on p.label_id = l.id
      cross join lateral (values ('wanted', p.wanted_at, p.page, p.wanted_job),
                                 ('accepted', p.accepted_at, p.page, p.accepted_job),
                                 ('shown', p.shown_at, p.page, p.accepted_job)) m (what, at, page, job)
      where l.tenant_id = $1 and l.mac = $2 and m.at is not null and ($3::timestamptz is null or m.at < $3)
      order by m.at desc, id desc limit $4`,
    [on.tenantId, id.replaceAll(/[^0-9a-fA-F]/g, '').toUpperCase(), before?.at ?? null, limit],
  );
  const texts: Readonly<Record<string, string>> = {
    wanted: 'a change was asked for',
    accepted: 'the gateway took the image',
    shown: 'the label shows it',
  };
  return rows.map(({ id: moment, what, at, page }) => ({
    id: moment,
    type: `label.${what}`,
    at,
    text: `page ${page}: ${texts[what] ?? what}`,
    details: { page },
  }));
}

/** Labels whose MAC begins with this text. */
export async function labelsLike(on: TenantQueries, text: string): Promise<readonly Subject[]> {
  const { rows } = await on.query<{ mac: string; store: string }>(
    `select l.mac, s.code as store from labels.labels l join labels.stores s on s.id = l.store_id
      where l.tenant_id = $1 and l.mac ^@ upper(replace($2, ':', '')) order by l.mac limit 10`,
    [on.tenantId, text],
  );
  return rows.map(({ mac, store }) => ({ type: 'label', id: mac, title: `label ${mac} in store ${store}` }));
}
