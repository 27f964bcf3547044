/**
 * The kinds of jobs of this app (BPC-1), as those who enqueue them need them. Handlers are in the modules beside this one;
 * `bindKinds` in index.ts puts both together.
 *
 *   parse-facts ─▶ build-snapshot ─▶ compile-passport ─▶ sign-passport ─▶ generate-qr ─▶ activate-version
 *                                      ▲                                                        │ of a model
 *                                      └────────────────── issue-items ◀────────────────────────┘
 *
 *   export-passport: for itself, when somebody asks for it
 *
 * A job of versions carries up to `batchSize` of them: items of one model share snapshot and rules.
 */
import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import { defineKind, type Kind, type Priority } from '../../../engine/jobs/kind.ts';

/** The queue of the chain. */
export const passportQueue = 'passports';

/** Versions in one job: enough to share round trips, few enough that a crash repeats little. */
export const batchSize = 50;

function declared<Payload>(
  name: string,
  priority: Priority,
  schema: z.ZodType<Payload, Payload>,
): Kind<Payload> {
  return defineKind<Payload>({
    name: `passports.${name}`,
    schema,
    queue: passportQueue,
    priority,
    scope: 'tenant',
    handler: () => {
      throw new TallymanError('BAD_STATE', `kind passports.${name} is run by the app passports alone`);
    },
  });
}

/** What is fixed when a compile is asked for, so that a retry compiles the same bytes. The salt is in the version's row. */
const issue = z.object({
  rulesId: z.uuid(),
  issuedAt: z.string(),
  signingKey: z.string(),
  build: z.string(),
  /** Issue the items of the model as well, once the model's version is active. */
  withItems: z.boolean(),
});
export type Issue = z.infer<typeof issue>;

const versions = z.object({
  versions: z.array(z.uuid()).min(1).max(200),
  /** Issue the items of this model after it. */
  next: issue.optional(),
});
export type VersionsJob = z.infer<typeof versions>;

const parse = z.object({ documentVersionId: z.uuid(), next: issue.optional() });
export type ParseJob = z.infer<typeof parse>;
export const parseFacts = declared<ParseJob>('parse-facts', 2, parse);

const build = z.object({ productId: z.string(), snapshotId: z.uuid(), next: issue.optional() });
export type BuildJob = z.infer<typeof build>;
export const buildSnapshotJob = declared<BuildJob>('build-snapshot', 2, build);

export const compilePassport = declared<VersionsJob>('compile-passport', 1, versions);
export const signPassport = declared<VersionsJob>('sign-passport', 1, versions);
export const generateQr = declared<VersionsJob>('generate-qr', 2, versions);
export const activateVersion = declared<VersionsJob>('activate-version', 2, versions);

const items = z.object({
  productId: z.string(),
  modelVersionId: z.uuid(),
  issue,
  /** Items whose passport id is larger; a job issues some and enqueues the next one. */
  after: z.uuid().nullable(),
});
export type ItemsJob = z.infer<typeof items>;
export const issueItems = declared<ItemsJob>('issue-items', 2, items);

const exported = z.object({ exportId: z.uuid() });
export type ExportJob = z.infer<typeof exported>;
export const exportPassport = declared<ExportJob>('export-passport', 3, exported);

export const chainKinds = {
  parseFacts,
  buildSnapshotJob,
  compilePassport,
  signPassport,
  generateQr,
  activateVersion,
  issueItems,
  exportPassport,
};
