import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { requireText } from '../../engine/validate.ts';
import { given } from '../../given.ts';

export interface Tenant {
  readonly id: string;
  readonly name: string;
  readonly createdAt: Date;
}

const columns = `id, name, created_at as "createdAt"`;

export class Tenants {
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  async create(id: string, name = id): Promise<Tenant> {
    if (!/^[a-z0-9][a-z0-9_-]{0,62}$/.test(id))
      throw new TallymanError(
        'BAD_OPTION',
        `a tenant's id has up to 63 small letters, digits, - and _, and begins with a letter or digit; got ${JSON.stringify(id)}`,
      );
    requireText(name, 'name', 200);
    const { rows } = await this.#database.query<Tenant>(
      `insert into tallyman_server.tenants (id, name) values ($1, $2) on conflict do nothing returning ${columns}`,
      [id, name],
    );
    if (!rows[0]) throw new TallymanError('BAD_STATE', `there is a tenant "${id}" already`);
    return rows[0];
  }

  async list(): Promise<readonly Tenant[]> {
    const { rows } = await this.#database.query<Tenant>(
      `select ${columns} from tallyman_server.tenants order by id collate "C" limit 10000`,
    );
    return rows;
  }

  /** In the order of their ids. */
  async page(request: PageRequest): Promise<Page<Tenant>> {
    const { limit, fetchLimit } = pageRequest(given({ limit: request.limit }));
    const { rows } = await this.#database.query<Tenant>(
      `select ${columns} from tallyman_server.tenants
        where $1::text is null or id collate "C" > $1 order by id collate "C" limit $2`,
      [request.cursor ?? null, fetchLimit],
    );
    return pageOf(rows, limit);
  }
}
