import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { OutsideTransaction } from '../../engine/outside-transaction.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { requireText } from '../../engine/validate.ts';
import { isBuiltIn, requireBuiltIn } from './built-ins.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks, labelsShowing, lockLabels } from './changes/tasks.ts';
import { images } from './images.ts';

/** A design by name, in its current version. */
export interface LabelTemplate {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  readonly version: number;
  readonly changedAt: Date;
  /** Pages that show it. */
  readonly pages: number;
}

const columns = `t.id, t.tenant_id as "tenantId", t.name, t.version, v.created_at as "changedAt",
  (select count(*)::int from labels.pages g where g.template_id = t.id) as pages`;
const from = 'labels.templates t join labels.template_versions v on v.id = t.version_id';

/** Creates a template, or its next version; all labels that show it get new images. The same text again changes nothing. */
export async function putTemplate(change: Change, name: string, svg: string): Promise<LabelTemplate> {
  const { tx, tenantId, drawsOutside = false } = change;
  requireText(name, 'the name of a template', 64);
  if (isBuiltIn(name))
    throw new TallymanError(
      'BAD_OPTION',
      `"${name}" is the name of a built-in template; copy it to another name and change the copy`,
    );
  requireText(svg, 'a template', 1024 * 1024);
  if (!images.knownTemplate(svg)) {
    const read = () => images.template(tenantId, svg);
    if (drawsOutside) throw new OutsideTransaction(read);
    await read();
  }
  await tx.query('insert into labels.templates (tenant_id, name) values ($1, $2) on conflict do nothing', [
    tenantId,
    name,
  ]);
  // Locked until the commit: two versions never get the same number, and a transaction that assigns the template (FOR SHARE) waits.
  const { rows } = await tx.query<{ id: string; svg: string | null }>(
    `select t.id, v.svg from labels.templates t left join labels.template_versions v on v.id = t.version_id
      where t.tenant_id = $1 and t.name = $2 for no key update of t`,
    [tenantId, name],
  );
  const [template] = rows;
  if (!template) throw new TallymanError('BAD_STATE', `template "${name}" was removed meanwhile; try again`);
  if (template.svg !== svg) {
    await tx.query(
      `with made as (
         insert into labels.template_versions (template_id, tenant_id, version, svg)
         select t.id, t.tenant_id, t.version + 1, $2 from labels.templates t where t.id = $1
         returning id, version)
       update labels.templates t set version_id = m.id, version = m.version from made m where t.id = $1`,
      [template.id, svg],
    );
    const ids = await labelsShowing(change, { templates: [template.id] });
    await lockLabels(change, ids);
    await enqueueTasks(change, ids, ({ templateId }) => templateId === template.id);
  }
  return (await requireTemplate(tx, tenantId, name)).template;
}

/** The text of a template, be it built in or the tenant's own. */
export async function requireSvg(on: Queryable, tenantId: string, name: string): Promise<string> {
  return isBuiltIn(name) ? requireBuiltIn(name).svg : (await requireTemplate(on, tenantId, name)).svg;
}

/** One of the tenant's own, with its text. */
export async function requireTemplate(
  on: Queryable,
  tenantId: string,
  name: string,
): Promise<{ readonly template: LabelTemplate; readonly svg: string }> {
  const { rows } = await on.query<LabelTemplate & { svg: string }>(
    `select ${columns}, v.svg from ${from} where t.tenant_id = $1 and t.name = $2 and not t.built_in`,
    [tenantId, name],
  );
  const [row] = rows;
  if (!row) throw new TallymanError('NOT_FOUND', `there is no label template "${name}"`);
  const { svg, ...template } = row;
  return { template, svg };
}

/** The tenant's own, newest first. */
export async function listTemplates(
  on: Queryable,
  tenantId: string,
  page: PageRequest = {},
): Promise<Page<LabelTemplate>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<LabelTemplate>(
    `select ${columns} from ${from}
      where t.tenant_id = $1 and not t.built_in and ($2::bigint is null or t.id < $2) order by t.id desc limit $3`,
    [tenantId, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** Removes all its versions. Refuses a template that labels show; tasks that name one of its versions fail. */
export async function removeTemplate({ tx, tenantId }: Change, name: string): Promise<void> {
  const { rows } = await tx.query<{ id: string }>(
    'select id from labels.templates where tenant_id = $1 and name = $2 and not built_in for update',
    [tenantId, name],
  );
  const [template] = rows;
  if (!template) throw new TallymanError('NOT_FOUND', `there is no label template "${name}"`);
  const used = await tx.query('select 1 from labels.pages where template_id = $1 limit 1', [template.id]);
  if (used.rows.length > 0)
    throw new TallymanError(
      'BAD_STATE',
      `there are labels that show the template "${name}"; assign them another`,
    );
  await tx.query('delete from labels.templates where id = $1', [template.id]);
}
