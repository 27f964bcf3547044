/** Two zones as `tallyman zones pair` makes them, each with a database of its own, run in this process. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Client, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { type PairedZone, pairZones } from '../../../src/apps/boundary/pairing/pair.ts';
import { BoundaryService } from '../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import type { App } from '../../../src/host/app.ts';
import { loadConfig } from '../../../src/host/config.ts';
import { type Serving, serve } from '../../../src/host/serve.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { freePorts } from '../../support/services/service.ts';

export interface Place extends PairedZone {
  readonly folder: string;
  readonly ca: string;
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  rows<R>(sql: string, values?: unknown[]): Promise<R[]>;
}

/** The certificates and configurations, and two empty databases; nothing runs yet. */
export async function pairedZones(): Promise<{ plant: Place; enterprise: Place }> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-zones-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const [port = 0] = await freePorts(1);
  const { authority, zones } = await pairZones({
    first: 'plant-a',
    second: 'enterprise',
    folder,
    trustDomain: 'example',
    url: `https://localhost:${port}`,
    port: 0,
    days: 2,
  });
  const [plant, enterprise] = zones;
  return { plant: await placeOf(plant, authority), enterprise: await placeOf(enterprise, authority) };
}

async function placeOf(zone: PairedZone, authority: string): Promise<Place> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  return {
    ...zone,
    folder: dirname(zone.configFile),
    ca: await readFile(authority, 'utf8'),
    url,
    env: {
      DATABASE_URL: url,
      TALLYMAN_SECRET_KEY: randomBytes(32).toString('base64'),
      TALLYMAN_CONFIG: zone.configFile,
    },
    rows: async <R>(sql: string, values?: unknown[]) => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      return (await client.query(sql, values).finally(() => client.end())).rows as R[];
    },
  };
}

export interface ServedZone extends Serving {
  readonly port: number;
}

/** The part `boundary` of `tallyman serve`, stopped with the test. */
export async function serveZone(
  { env }: Pick<Place, 'env'>,
  more: Readonly<Record<string, string>> = {},
  parts: readonly string[] = ['boundary'],
  apps: readonly App[] = [boundaryApp],
): Promise<ServedZone> {
  const serving = await serve({
    apps,
    config: loadConfig(apps, { env: { ...env, ...more } }),
    parts,
    kinds: [],
    version: '0.0.0',
    logger: silentLogger,
    migrate: true,
  });
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    stopping ??= serving.stop();
    return stopping;
  };
  onTestFinished(stop);
  const line = serving.lines.find((each) => each.startsWith('boundary'));
  const port = Number(/:(\d+)(?:,|$)/.exec(line ?? '')?.[1] ?? 0);
  return { lines: serving.lines, url: serving.url, lost: serving.lost, stop, port };
}

/** A client with the certificate that the pairing made for this role. */
export async function clientOf(
  place: Place,
  role: 'producer' | 'consumer' | 'peer',
  port: number,
  ca = place.ca,
): Promise<Client<typeof BoundaryService>> {
  const [key = '', cert = ''] = await Promise.all(
    ['key', 'crt'].map((kind) => readFile(join(place.folder, `${role}.${kind}`), 'utf8')),
  );
  return createClient(
    BoundaryService,
    createGrpcTransport({
      baseUrl: `https://localhost:${port}`,
      nodeOptions: { key, cert, ca },
      idleConnectionTimeoutMs: 1000,
    }),
  );
}

export const factOf = (messageId: string, from: string, to: string, object: unknown = 1) => ({
  envelope: { messageId, fromZone: from, toZone: to, producedAtUnixMs: 1n },
  fact: { subject: `work_order:${messageId}`, predicate: 'has_state', objectJson: JSON.stringify(object) },
});
