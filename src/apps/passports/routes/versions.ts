import { z } from 'zod';
import { given } from '../../../given.ts';
import { guests, operators, readers } from '../../../host/roles.ts';
import { type AnyRoute, type Call, id as jobId, pageOf, Reply, route, text } from '../../../host/route.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { readerOf } from '../access.ts';
import { canonical } from '../compile/canonical.ts';
import { redactPayload } from '../compile/payload.ts';
import { redactProof } from '../compile/proof.ts';
import { type Json, readerPoints } from '../compile/types.ts';
import { notFound, passportError } from '../errors.ts';
import { requireIssue } from '../issue.ts';
import { replayVersion, requireCheckedRules } from '../replay.ts';
import {
  artefactsOf,
  listVersions,
  type PassportVersion,
  requirePassport,
  requireProduct,
  requireSnapshot,
  requireVersion,
  snapshotStates,
  type VersionArtefacts,
  type VersionState,
  versionStates,
} from '../store/index.ts';
import { progressOf } from '../store/progress.ts';
import { requestItems } from '../write/issue.ts';
import { requestActivation, revokeVersion } from '../write/version-steps.ts';
import { requestItemVersion, requestModelVersion } from '../write/versions.ts';
import type { RouteTools } from './index.ts';
import { issueBody, withItemsBody } from './issue.ts';
import { requireExisting } from './passports.ts';
import { byId, byProduct, hash, pageByUuids, uuid } from './shapes.ts';

const shape = z.object({
  id: uuid,
  passport_id: uuid,
  number: z.number(),
  state: z.enum(versionStates),
  snapshot_id: uuid,
  rules_id: uuid,
  model_version_id: uuid.nullable(),
  product_id: z.string(),
  serial: z.string().nullable(),
  issued_at: z.string(),
  build: z.string(),
  signing_key: z.string(),
  payload_hash: hash.nullable(),
  proof_hash: hash.nullable(),
  receipt_hash: hash.nullable(),
  signature: z.string().nullable().describe('Ed25519 over the 32 bytes of the receipt’s hash, base64url'),
  qr_text: z.string().nullable().describe('What the document code says'),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  reason: z.string().nullable().describe('Why it was revoked'),
  created_at: z.string(),
  signed_at: z.string().nullable(),
  active_at: z.string().nullable(),
  ended_at: z.string().nullable(),
});

export const versionJson = (version: PassportVersion) => ({
  id: version.id,
  passport_id: version.passportId,
  number: version.number,
  state: version.state,
  snapshot_id: version.snapshotId,
  rules_id: version.rulesId,
  model_version_id: version.modelVersionId,
  product_id: version.product.id,
  serial: version.item?.serial ?? null,
  issued_at: version.issuedAt,
  build: version.build,
  signing_key: version.signingKey,
  payload_hash: version.payloadHash,
  proof_hash: version.proofHash,
  receipt_hash: version.receiptHash,
  signature: version.signature && Buffer.from(version.signature).toString('base64url'),
  qr_text: version.qrText,
  error: version.error,
  reason: version.reason,
  created_at: version.createdAt,
  signed_at: version.signedAt,
  active_at: version.activeAt,
  ended_at: version.endedAt,
});

const requested = z.object({
  version_id: uuid.nullable().describe('Null: such a version was asked for before'),
});

/** What is signed. Guests see what left the house: versions that counted once, of a passport that has not ceased. */
async function signedArtefacts({
  scope,
  params,
  caller,
}: Pick<Call<{ id: string }, unknown, unknown>, 'scope' | 'params' | 'caller'>): Promise<VersionArtefacts> {
  const { state, activeAt, passportId } = await requireVersion(scope, params.id);
  const isOwner = readerOf(caller) === 'owner';
  if (state === 'COMPILING' || (activeAt === null && !isOwner)) throw notFound('signed version', params.id);
  if (!isOwner) requireExisting(await requirePassport(scope, passportId));
  const artefacts = await artefactsOf(scope, params.id);
  if (!artefacts) throw notFound('signed version', params.id);
  return artefacts;
}

/** A snapshot has the facts of one model; another model's passport must not be made of them. */
async function requireSnapshotOf(on: TenantQueries, product: string, snapshotId: string): Promise<void> {
  const { productId } = await requireSnapshot(on, snapshotId);
  if (productId !== product)
    throw passportError(
      'VALIDATION_ERROR',
      `body.snapshot_id: snapshot ${snapshotId} is of product "${productId}", not of "${product}"`,
    );
}

export const versionRoutes = ({ means, work }: RouteTools): readonly AnyRoute[] => {
  /** A part of a version as the very text that its hash covers, or as the reader's redaction of it. */
  const part = (
    name: string,
    summary: string,
    textOf: (artefacts: VersionArtefacts, points: (typeof readerPoints)['public']) => Json,
  ): AnyRoute =>
    route({
      method: 'GET',
      url: `/v1/passports/versions/:id/${name}`,
      action: `passport_versions.${name}`,
      summary,
      roles: [...readers, ...guests],
      params: byId,
      response: z.record(z.string(), z.unknown()),
      handle: async (call) => {
        const points = readerPoints[readerOf(call.caller)];
        return new Reply('application/json', canonical(textOf(await signedArtefacts(call), points)));
      },
    });
  return [
    route({
      method: 'POST',
      url: '/v1/passports/products/:product/versions',
      action: 'passport_versions.issue',
      summary:
        'Compile a new version of a model’s passport from its latest sealed snapshot, in the background',
      roles: operators,
      params: byProduct,
      body: z.strictObject({ ...issueBody, snapshot_id: uuid.optional(), with_items: withItemsBody }),
      status: 202,
      response: requested,
      handle: async (call) => {
        const { rules, issued_at: issuedAt = new Date(), snapshot_id: snapshotId, with_items } = call.body;
        if (snapshotId !== undefined) await requireSnapshotOf(call.scope, call.params.product, snapshotId);
        const issue = await requireIssue(call.scope, means, { rules, issuedAt, withItems: with_items });
        const id = await requestModelVersion(work(call), call.params.product, issue, snapshotId);
        return { version_id: id ?? null };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/items/:id/versions',
      action: 'passport_versions.issue_item',
      summary:
        'Compile a new version of one battery’s passport, linked to its model’s active version, in the background',
      roles: operators,
      params: byId,
      body: z.strictObject(issueBody),
      status: 202,
      response: requested,
      handle: async (call) => {
        const { rules, issued_at: issuedAt = new Date() } = call.body;
        const issue = await requireIssue(call.scope, means, { rules, issuedAt, withItems: false });
        return { version_id: (await requestItemVersion(work(call), call.params.id, issue)) ?? null };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/versions/:id/items',
      action: 'passport_versions.issue_items',
      summary: 'Compile a version for each battery of the model that has not ceased, in the background',
      roles: operators,
      params: byId,
      body: z.strictObject(issueBody),
      status: 202,
      response: z.object({ model_version_id: uuid }),
      handle: async (call) => {
        const { rules, issued_at: issuedAt = new Date() } = call.body;
        const issue = await requireIssue(call.scope, means, { rules, issuedAt, withItems: true });
        await requestItems(work(call), call.params.id, issue);
        return { model_version_id: call.params.id };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/passports/products/:product/progress',
      action: 'passport_products.progress',
      summary: 'How far documents and passports of a model are',
      roles: readers,
      params: byProduct,
      response: z.object({
        documents: z.record(z.string(), z.number()).describe('Versions of documents by state'),
        snapshot: z
          .object({ snapshot_id: uuid, state: z.enum(snapshotStates), error: z.string().nullable() })
          .nullable()
          .describe('The snapshot that was requested last'),
        model: z
          .object({ version_id: uuid, state: z.enum(versionStates), error: z.string().nullable() })
          .nullable()
          .describe('The newest version of the model’s passport'),
        batteries: z.number().describe('Those that have not ceased'),
        versions: z
          .record(z.string(), z.number())
          .describe(
            'Versions of batteries that link to the newest version of the model, by state; FAILED: for good',
          ),
      }),
      handle: async ({ scope, params }) => {
        await requireProduct(scope, params.product);
        return progressOf(scope, params.product);
      },
    }),
    route({
      method: 'GET',
      url: '/v1/passports/versions',
      action: 'passport_versions.list',
      summary: 'Versions of passports, by id',
      roles: readers,
      query: z.strictObject({
        ...pageByUuids,
        state: z.enum(versionStates).optional(),
        product: text(128).optional(),
        passport: uuid.optional(),
      }),
      response: pageOf(shape),
      handle: async ({ scope, query: { limit, cursor, state, product, passport } }) => {
        const filter = given({
          state: state as VersionState | undefined,
          productId: product,
          passportId: passport,
        });
        const found = await listVersions(scope, filter, given({ limit, cursor }));
        return { items: found.items.map(versionJson), next_cursor: found.nextCursor };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/passports/versions/:id',
      action: 'passport_versions.show',
      summary: 'One version of a passport',
      roles: readers,
      params: byId,
      response: shape,
      handle: async ({ scope, params }) => versionJson(await requireVersion(scope, params.id)),
    }),
    part(
      'receipt',
      'The receipt, which binds inputs and outputs; public',
      ({ receipt }) => receipt as unknown as Json,
    ),
    part(
      'payload',
      'The fields that the reader may see, and hashes of the other parts',
      ({ payload }, points) => redactPayload(payload, points) as unknown as Json,
    ),
    part(
      'proof',
      'How each value that the reader may see was made, down to document and row',
      ({ proof }, points) => redactProof(proof, points) as unknown as Json,
    ),
    route({
      method: 'GET',
      url: '/v1/passports/versions/:id/code',
      action: 'passport_versions.code',
      summary: 'The document code as PNG: 10 pixels a module, border 0',
      roles: [...readers, ...guests],
      params: byId,
      produces: 'image/png',
      response: z.string(),
      handle: async (call) => {
        const { qrPng } = await signedArtefacts(call);
        if (!qrPng) throw notFound('document code of version', call.params.id);
        return new Reply('image/png', qrPng);
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/versions/:id/activate',
      action: 'passport_versions.activate',
      summary: 'Let a signed version count; the one that counted until now is superseded. In the background',
      roles: operators,
      params: byId,
      status: 202,
      response: z.object({ job_id: jobId }),
      handle: async (call) => ({ job_id: await requestActivation(work(call), call.params.id) }),
    }),
    route({
      method: 'POST',
      url: '/v1/passports/versions/:id/revoke',
      action: 'passport_versions.revoke',
      summary: 'Revoke a version for good; its code still names it, and readers are told',
      roles: operators,
      params: byId,
      body: z.strictObject({ reason: text(2000) }),
      response: shape,
      handle: async (call) => {
        await revokeVersion(work(call), call.params.id, call.body.reason);
        return versionJson(await requireVersion(call.scope, call.params.id));
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/versions/:id/replay',
      action: 'passport_versions.replay',
      summary: 'Compile a version again from what is stored, and compare the three hashes and the signature',
      roles: readers,
      readsOnly: true,
      params: byId,
      response: z.object({ version_id: uuid, payload_hash: hash, proof_hash: hash, receipt_hash: hash }),
      handle: async ({ scope, params }) => {
        await requireCheckedRules(scope, params.id, means);
        const { versionId, payloadHash, proofHash, receiptHash } = await replayVersion(
          scope,
          params.id,
          means,
        );
        return {
          version_id: versionId,
          payload_hash: payloadHash,
          proof_hash: proofHash,
          receipt_hash: receiptHash,
        };
      },
    }),
  ];
};
