import type { AnyKind, Handler, Kind } from '../../../engine/jobs/kind.ts';
import type { Means } from '../means.ts';
import { activateVersionHandler } from './activate-version.ts';
import { buildSnapshotHandler } from './build-snapshot.ts';
import { compilePassportHandler } from './compile-passport.ts';
import { exportPassportHandler } from './export-passport.ts';
import { generateQrHandler } from './generate-qr.ts';
import { issueItemsHandler } from './issue-items.ts';
import { chainKinds } from './kinds.ts';
import { parseFactsHandler } from './parse-facts.ts';
import { signPassportHandler } from './sign-passport.ts';

const bound = <Payload>(kind: Kind<Payload>, handler: Handler<Payload>): AnyKind => ({ ...kind, handler });

/** The kinds of the chain with their handlers, for a worker. */
export const passportKinds = (means: Means): readonly AnyKind[] => [
  bound(chainKinds.parseFacts, parseFactsHandler(means)),
  bound(chainKinds.buildSnapshotJob, buildSnapshotHandler(means)),
  bound(chainKinds.compilePassport, compilePassportHandler(means)),
  bound(chainKinds.signPassport, signPassportHandler(means)),
  bound(chainKinds.generateQr, generateQrHandler(means)),
  bound(chainKinds.activateVersion, activateVersionHandler(means)),
  bound(chainKinds.issueItems, issueItemsHandler(means)),
  bound(chainKinds.exportPassport, exportPassportHandler(means)),
];
