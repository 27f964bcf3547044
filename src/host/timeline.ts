import type pg from 'pg';

/** A physical thing, or a record of one: `basket:3314257BF40C0E4000000190`, `label:0123456789AB`, `job:17`. */
export interface Subject {
  readonly type: string;
  readonly id: string;
  /** In words, for a list of search results. */
  readonly title?: string;
}

/** Something that is known to have happened to a subject. */
export interface Moment {
  /** Unique among the moments of its type. */
  readonly id: string;
  /** `rfid.movement` */
  readonly type: string;
  readonly at: Date;
  /** One sentence. */
  readonly text: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface SubjectPage {
  readonly limit: number;
  /** Only moments before this one. */
  readonly before?: { readonly at: Date };
}

/** A transaction that sees one tenant's rows. */
export interface TenantQueries {
  readonly tenantId: string;
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
}
