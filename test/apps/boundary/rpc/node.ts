import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { isSignedBy } from '../../../../src/apps/boundary/domain/receipt.ts';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { defaultReceiveLimits } from '../../../../src/apps/boundary/handoff/receive.ts';
import { Intake } from '../../../../src/apps/boundary/intake.ts';
import { Admission, type AdmissionOptions } from '../../../../src/apps/boundary/limits/admission.ts';
import { defaultLimits } from '../../../../src/apps/boundary/limits/fill.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { type ServerOptions, startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import type { BoundaryNode, RefusedCall } from '../../../../src/apps/boundary/rpc/service.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { boundaryDatabase, storeOn } from '../support.ts';

export interface TestNodeOptions {
  readonly maxObjectBytes?: number;
  readonly admission?: Partial<AdmissionOptions>;
}

/** A node of a zone with a database and a folder of its own, gone with the test. */
export async function testNode(
  slug: 'plant-a' | 'enterprise' = 'plant-a',
  { maxObjectBytes = 1024 ** 3, admission: changes = {} }: TestNodeOptions = {},
) {
  const { database, url } = await boundaryDatabase();
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-node-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const zones = new Zones(['plant-a', 'enterprise', 'lab']);
  const zone = zones.resolve(slug, 'zone');
  const store = storeOn(database, { admit: (stream, bytes) => admission.admit(stream, bytes) });
  const objects = new Objects({ database, blobs: await FileBlobs.open(folder), maxBytes: maxObjectBytes });
  const admission = new Admission({
    store,
    limits: defaultLimits,
    freeBytes: async () => undefined,
    ...changes,
  });
  /** Can be changed while the node serves. */
  const receiveLimits = { ...defaultReceiveLimits };
  const intake = new Intake({
    zone,
    zones,
    store,
    objects,
    admission,
    holdGraceMs: 600_000,
  });
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const refusals: RefusedCall[] = [];
  /** By zone. */
  const peerKeys = new Map<string, KeyObject>();
  const node: BoundaryNode = {
    zone,
    zones,
    sendsTo: zones.all.filter((each) => each !== zone && each !== 'lab'),
    tenantId: 'default',
    store,
    intake,
    objects,
    isGenuine: (receipt) => isSignedBy(receipt, peerKeys.get(receipt.to) ?? publicKey),
    receiptKey: { id: 'k1', privateKey },
    receiveLimits,
    logger: silentLogger,
    onRefusal: (refusal) => refusals.push(refusal),
  };
  const serve = async (tls?: ServerOptions['tls']) => {
    const server = await startBoundaryServer({ node, host: '127.0.0.1', port: 0, ...(tls && { tls }) });
    onTestFinished(() => server.stop());
    return server;
  };
  return {
    node,
    database,
    url,
    folder,
    store,
    objects,
    admission,
    receiveLimits,
    publicKey,
    privateKey,
    peerKeys,
    refusals,
    serve,
  };
}
