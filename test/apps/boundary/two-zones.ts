import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { isSignedBy, signReceipt } from '../../../src/apps/boundary/domain/receipt.ts';
import { pullOnce } from '../../../src/apps/boundary/handoff/pull.ts';
import { pushOnce } from '../../../src/apps/boundary/handoff/push.ts';
import { BoundaryService } from '../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import type { StoredEntry, StreamId } from '../../../src/apps/boundary/store/store.ts';
import { TestAuthority } from './rpc/certificates.ts';
import { type TestNodeOptions, testNode } from './rpc/node.ts';

export const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };
export const into: StreamId = { ...out, buffer: 'forward' };

export interface TwoZonesOptions {
  readonly plant?: TestNodeOptions;
  readonly enterprise?: TestNodeOptions;
}

/** A plant that sends to an enterprise, each with a node of its own; the enterprise serves with mutual TLS. */
export async function twoZones(nodes: TwoZonesOptions = {}) {
  const authority = await TestAuthority.make();
  const plant = await testNode('plant-a', nodes.plant);
  const enterprise = await testNode('enterprise', nodes.enterprise);
  const tls = { load: () => authority.server(), identities: { trustDomain: 'example' } };
  const first = await enterprise.serve(tls);
  const nodeOptions = {
    ...(await authority.issue({ uris: ['spiffe://example/zone/plant-a/peer'] })),
    ca: authority.ca,
  };
  const transport = () => createGrpcTransport({ baseUrl: `https://localhost:${first.port}`, nodeOptions });
  const options = {
    store: plant.store,
    objects: plant.objects,
    stream: out,
    peer: createClient(BoundaryService, transport()),
    isGenuine: (receipt: Parameters<typeof isSignedBy>[0]) => isSignedBy(receipt, enterprise.publicKey),
    instance: 'i1',
    batch: 20,
    carried: new Set<string>(),
  };
  const input = {
    fromZone: 'plant-a',
    toZone: 'enterprise',
    producedAt: 1,
    subject: 'order:1',
    predicate: 'is',
  };
  const append = (messageId: string, object: unknown = 1) =>
    plant.node.intake.append(
      { tenantId: 'default', authorize: () => {} },
      { ...input, messageId, objectJson: JSON.stringify(object) },
    );
  const putObject = async (key: string, bytes: Buffer, on = plant) => {
    async function* source() {
      yield bytes;
    }
    const name = { bucket: 'files', key };
    return { ...name, ...(await on.objects.put({ ...name, tenantId: 'default' }, source())) };
  };
  const all = async (on: typeof plant, stream: StreamId): Promise<StoredEntry[]> => {
    const read: StoredEntry[] = [];
    for (;;) {
      const page = await on.store.read(stream, {
        after: read.at(-1)?.offset ?? 0,
        limit: 1000,
        maxBytes: 1e7,
      });
      if (page.length === 0) return read;
      read.push(...page);
    }
  };
  const push = () => pushOnce(options, 0, new AbortController().signal);
  return { authority, plant, enterprise, first, tls, options, append, putObject, all, push };
}

export const essence = (entries: readonly StoredEntry[]) =>
  entries.map(({ offset, key, digest, text }) => [offset, key, digest, text]);

/** The same, with a plant that serves, and an enterprise that fetches. */
export async function pulling(nodes: TwoZonesOptions = {}) {
  const zones = await twoZones(nodes);
  const { plant, enterprise, authority, tls } = zones;
  plant.peerKeys.set('enterprise', enterprise.publicKey);
  const { port } = await plant.serve(tls);
  const nodeOptions = {
    ...(await authority.issue({ uris: ['spiffe://example/zone/enterprise/peer'] })),
    ca: authority.ca,
  };
  const options = {
    store: enterprise.store,
    objects: enterprise.objects,
    stream: into,
    peer: createClient(
      BoundaryService,
      createGrpcTransport({ baseUrl: `https://localhost:${port}`, nodeOptions }),
    ),
    sign: (receipt: Parameters<typeof signReceipt>[0]) =>
      signReceipt(receipt, { id: 'k1', privateKey: enterprise.privateKey }),
    instance: 'e1',
    batch: 20,
  };
  return { ...zones, options, pull: () => pullOnce(options, 0, new AbortController().signal) };
}
