/** The storages of objects that the tests run on, also in processes of their own. */
import { randomUUID } from 'node:crypto';
import { globSync } from 'node:fs';
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { Blobs } from '../../../../src/apps/boundary/objects/blobs.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { JetStreamBlobs } from '../../../../src/apps/boundary/objects/jetstream/blobs.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { privateJetStream } from '../../../support/services/jetstream.ts';

/** What a process needs to open it. */
export type Place =
  | { readonly kind: 'files'; readonly folder: string }
  | {
      readonly kind: 'jetstream';
      readonly servers: readonly string[];
      readonly monitorUrls: readonly string[];
      readonly replicas: number;
      readonly tenantId: string;
      readonly zone: string;
    };

export function openBlobs(place: Place): Promise<Blobs> {
  return place.kind === 'files'
    ? FileBlobs.open(place.folder)
    : JetStreamBlobs.open({ ...place, logger: silentLogger });
}

export interface Storage {
  readonly place: Place;
  /** As the configuration of a node says it. */
  readonly env: Readonly<Record<string, string>>;
  /** Files, or messages. */
  count(): Promise<number>;
  /** Their names, for a test that expects none. */
  left(): Promise<string[]>;
  /** From now on no write of bytes ends, until the returned function is called. Seconds, not more. */
  holdWrites(): Promise<() => void>;
  /** Kills what holds the bytes, if it is a process, and starts it again. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export async function files(): Promise<Storage> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-objects-'));
  const left = async (): Promise<string[]> =>
    globSync('**/*', { cwd: folder, withFileTypes: true })
      .filter((each) => each.isFile())
      .map(({ parentPath, name }) => join(parentPath, name));
  return {
    place: { kind: 'files', folder },
    env: { TALLYMAN_BOUNDARY_OBJECTS_FOLDER: folder },
    count: async () => (await left()).length,
    left,
    holdWrites: holdFileWrites,
    restart: async () => {},
    stop: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Of this process. */
async function holdFileWrites(): Promise<() => void> {
  const file = await open(import.meta.filename);
  const writes = Object.getPrototypeOf(file) as { write: (...args: unknown[]) => Promise<unknown> };
  await file.close();
  const { write } = writes;
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  writes.write = async function (...args) {
    await released;
    return write.apply(this, args);
  };
  return () => {
    writes.write = write;
    release();
  };
}

export async function jetstream(): Promise<Storage> {
  const { service, url, monitorUrl } = await privateJetStream();
  await service.start();
  const place = {
    kind: 'jetstream',
    servers: [url],
    monitorUrls: [monitorUrl],
    replicas: 1,
    tenantId: randomUUID(),
    zone: 'plant-a',
  } as const;
  return {
    place,
    env: {
      TALLYMAN_BOUNDARY_OBJECTS_STORAGE: 'jetstream',
      TALLYMAN_BOUNDARY_JETSTREAM_SERVERS: url,
      TALLYMAN_BOUNDARY_JETSTREAM_MONITOR_URLS: monitorUrl,
      TALLYMAN_BOUNDARY_JETSTREAM_REPLICAS: '1',
    },
    count: async () => {
      const answer = await fetch(`${monitorUrl}/jsz`);
      return ((await answer.json()) as { messages: number }).messages;
    },
    left: async () => {
      const connection = await connect({ servers: url });
      const { streams } = await jetstreamManager(connection);
      const left: string[] = [];
      for await (const name of streams.names()) {
        const { subjects = {} } = (await streams.info(name, { subjects_filter: '>' })).state;
        for (const subject of Object.keys(subjects)) {
          const message = await streams.getMessage(name, { last_by_subj: subject });
          left.push(`${subject} ${subject.includes('.chunk.') ? '' : message?.string()}`);
        }
      }
      await connection.close();
      return left;
    },
    holdWrites: async () => {
      service.pause();
      return () => service.resume();
    },
    restart: async () => {
      await service.kill();
      await service.start();
    },
    stop: () => service[Symbol.asyncDispose](),
  };
}

export const storages = { files, jetstream } as const;
export type StorageName = keyof typeof storages;
