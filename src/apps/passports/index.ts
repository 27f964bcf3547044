/** Battery passports, for programs. The compiler alone, which runs anywhere: `compile/index.ts`. */
export { passportAccess, readerOf } from './access.ts';
export { headText, lastHead, readHead, type SavedHead } from './audit/saved-head.ts';
export { type AuditReport, type BrokenLink, type KnownHead, verifyAudit } from './audit/verify.ts';
export * from './compile/index.ts';
export { passportsComponent } from './component.ts';
export { passportKinds } from './jobs/index.ts';
export { type Means, meansOf, meansWith } from './means.ts';
export { type Replayed, replayVersion } from './replay.ts';
export { type FurnishedSample, furnishSample } from './sample.ts';
export { type KeyRing, keyRing } from './signing/keys.ts';
export {
  type AuditEvent,
  artefactsOf,
  auditEventsOf,
  type DocumentVersion,
  documentBytes,
  exportBytes,
  findPassport,
  findPassportOf,
  type ItemEvent,
  itemEventsOf,
  listDocumentVersions,
  listExports,
  listFacts,
  listPassports,
  listProducts,
  listRulePackages,
  listSnapshots,
  listVersions,
  type PassportVersion,
  requireExport,
  requireVersion,
  type StoredExport,
  type StoredFact,
  type StoredItem,
  type StoredPassport,
  type StoredProduct,
  type StoredRulePackage,
  type StoredSnapshot,
  type VersionArtefacts,
  versionAt,
  versionsOf,
} from './store/index.ts';
export { type Fresh, randomFresh, type Work, workIn } from './work.ts';
export { type NewDocument, type UploadedDocument, uploadDocument } from './write/documents.ts';
export { type ExportRequest, type RequestedExport, requestExport } from './write/exports.ts';
export { newIssue, requestItems } from './write/issue.ts';
export { appendItemEvent, type NewItemEvent } from './write/item-events.ts';
export {
  type AddedItems,
  addItems,
  addPredecessors,
  ceaseItem,
  setItemStatus,
} from './write/passports.ts';
export { putProduct } from './write/products.ts';
export {
  publishRulePackage,
  putRulePackage,
  retireRulePackage,
  validateRulePackage,
} from './write/rules.ts';
export { rebuildSnapshot, requestSnapshot } from './write/snapshots.ts';
export { requestActivation, revokeVersion } from './write/version-steps.ts';
export { requestModelVersion, requestVersions } from './write/versions.ts';
