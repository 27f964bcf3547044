/** The connection to the cluster: opened again with another server when it is lost, or when its server gives no answers. */
import { readFile } from 'node:fs/promises';
import type { JetStreamManager } from '@nats-io/jetstream';
import type { Msg, MsgHdrs, NatsConnection } from '@nats-io/transport-node';
import { messageOf, TallymanError } from '../../../../engine/errors.ts';
import type { Logger } from '../../../../engine/logger.ts';
import { type BackoffLimits, backoffMs } from '../../../../engine/resilience/backoff.ts';
import { pause } from '../../../../engine/resilience/deadline.ts';
import { Link, type Session } from '../../../../engine/resilience/link.ts';
import { cutOnAbort, type NatsServers, readNatsServers } from '../../../../engine/resilience/nats.ts';
import { Outage } from '../../../../engine/resilience/outage.ts';
import { addressOf, missingPackage } from '../../../../engine/resilience/service.ts';
import { ClusterUnavailable, isUnavailable, type Kept, unavailableError } from './errors.ts';
import { everyHead, everyHint } from './names.ts';
import { checkSync, requireVersion, type SyncCheck } from './sync-check.ts';

export interface JetStreamOptions {
  readonly servers: readonly string[];
  /** Copies of each stream. */
  readonly replicas: number;
  /** Addresses of the servers' monitoring ports. */
  readonly monitorUrls: readonly string[];
  readonly credentialsFile?: string | undefined;
  readonly caFile?: string | undefined;
  /** What lies there; for errors. Default: facts. */
  readonly keeps?: Kept;
  readonly logger: Logger;
}

/** The key that asks for JetStream, by what lies there. */
const keys = { facts: 'boundary.storage', objects: 'boundary.objects.storage' } as const;

export interface JetStreamSession extends Session {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly synced: SyncCheck;
  nextId(): string;
  headers(): MsgHdrs;
  /** A call has failed. After failures for `failuresMs` without a success the connection ends, and another server is tried. */
  noteFailure(error: Error): void;
  /** A call has succeeded. */
  noteSuccess(): void;
}

export interface Listener {
  /** Another connection tries to append, or has appended and says so. */
  onHead(subject: string): void;
  onHint(subject: string): void;
  /** Hints may have been missed. */
  onSession(): void;
}

/** A record of 1 MiB, or a chunk of an object, must fit into a message with its headers. */
const leastPayload = 1024 * 1024 + 16 * 1024;
const connectTimeoutMs = 5000;
/** A server that closed nothing and says nothing is noticed after two or three of these. */
const pingIntervalMs = 2000;
/** Calls may fail for this long before another server is tried: the election of a leader takes about as long. */
const failuresMs = 3000;
const reconnect: BackoffLimits = { minMs: 100, maxMs: 3000 };
const retry: BackoffLimits = { minMs: 20, maxMs: 500 };
/** How long a call is tried: longer than an election takes. */
const callMs = 15_000;
const recheckMs = 60_000;

interface Packages {
  readonly transport: typeof import('@nats-io/transport-node');
  readonly jetstream: typeof import('@nats-io/jetstream');
}

export class JetStreamCluster {
  readonly #options: JetStreamOptions;
  readonly #servers: NatsServers;
  readonly #packages: Packages;
  readonly #link: Link<JetStreamSession>;
  /** Undefined: nothing is heard of what others do. */
  readonly #listener: Listener | undefined;
  readonly #stopped = new AbortController();
  /** Of the first connection: it makes the start fail. Later ones wait for the operator. */
  #refusal: unknown;

  private constructor(options: JetStreamOptions, packages: Packages, listener: Listener | undefined) {
    this.#options = options;
    this.#packages = packages;
    this.#listener = listener;
    this.#servers = readNatsServers(options.servers, 'boundary.jetstream.servers');
    const fields = { servers: this.#servers.addresses.map(addressOf).join(', ') };
    this.#link = new Link({
      connect: (signal) => this.#connect(signal),
      outage: new Outage(options.logger, fields, {
        down: `the JetStream cluster with the ${this.#keeps} is away: ${this.#keeps === 'facts' ? 'appends fail' : 'objects cannot be stored or read'}, reconnecting`,
        up: `the JetStream cluster with the ${this.#keeps} is back`,
      }),
      reconnect,
      connectTimeoutMs: connectTimeoutMs + 3000,
    });
  }

  /** Throws if the cluster cannot be reached or must not be used: a node does not start without its storage. */
  static async open(options: JetStreamOptions, listener?: Listener): Promise<JetStreamCluster> {
    const packages = await loadPackages(keys[options.keeps ?? 'facts']);
    const cluster = new JetStreamCluster(options, packages, listener);
    await cluster.#link.start();
    if (cluster.#link.session) return cluster;
    const status = cluster.#link.status();
    await cluster.stop();
    if (cluster.#refusal instanceof TallymanError) throw cluster.#refusal;
    throw new TallymanError(
      'BAD_CONFIG',
      `the JetStream cluster at ${cluster.#servers.addresses.join(', ')} (boundary.jetstream.servers) cannot be used: ` +
        `${status.state === 'down' ? status.reason : 'it went away'}`,
    );
  }

  get #keeps(): Kept {
    return this.#options.keeps ?? 'facts';
  }

  get replicas(): number {
    return this.#options.replicas;
  }

  get trouble(): string | undefined {
    const status = this.#link.status();
    return status.state === 'up'
      ? undefined
      : `the JetStream cluster with the ${this.#keeps} is away: ${status.reason}`;
  }

  /** The present connection; throws `ClusterUnavailable`. */
  get session(): JetStreamSession {
    const { session } = this.#link;
    if (session) return session;
    const status = this.#link.status();
    throw new ClusterUnavailable(status.state === 'down' ? status.reason : 'connecting');
  }

  /** Retries until the cluster answers; throws UNAVAILABLE after `callMs`. */
  async call<T>(work: (session: JetStreamSession) => Promise<T>): Promise<T> {
    const waitToRetry = this.retryUntilDeadline();
    for (;;) {
      try {
        const { session } = this;
        const answer = await work(session);
        session.noteSuccess();
        return answer;
      } catch (error) {
        if (!isUnavailable(error)) throw error;
        await waitToRetry(error);
      }
    }
  }

  /**
   * Begins a call that is retried for `callMs`. Await the returned function after each failure: it waits before the next attempt,
   * and throws UNAVAILABLE after the deadline.
   */
  retryUntilDeadline(): (error: Error) => Promise<void> {
    const since = performance.now();
    let failures = 0;
    let isUncertain = false;
    return async (error) => {
      isUncertain ||= error instanceof ClusterUnavailable && error.isUncertain;
      this.#link.session?.noteFailure(error);
      if (this.#stopped.signal.aborted || performance.now() - since > callMs)
        throw unavailableError(error, isUncertain, this.#keeps);
      await pause(backoffMs(failures++, retry), this.#stopped.signal);
    };
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#link.stop();
  }

  async #connect(signal: AbortSignal): Promise<JetStreamSession> {
    const isFirst = this.#refusal === undefined;
    try {
      const connection = await cutOnAbort(signal, () => this.#dial());
      try {
        return await this.#prepared(connection, signal);
      } catch (error) {
        await connection.close();
        throw error;
      }
    } catch (error) {
      if (isFirst) this.#refusal = error;
      throw error;
    }
  }

  async #dial(): Promise<NatsConnection> {
    const { credentialsFile, caFile } = this.#options;
    const { transport } = this.#packages;
    const { addresses, user, password, token, tls } = this.#servers;
    const credentials = credentialsFile === undefined ? undefined : await readCredentials(credentialsFile);
    return transport.connect({
      servers: [...addresses],
      name: 'tallyman boundary',
      // The link connects again: each connection is checked before it is used, and no message waits in the client.
      reconnect: false,
      // What others try to append is heard, and not what this process does.
      noEcho: true,
      timeout: connectTimeoutMs,
      pingInterval: pingIntervalMs,
      maxPingOut: 2,
      ...(credentials && { authenticator: transport.credsAuthenticator(credentials) }),
      ...(user !== undefined && { user }),
      ...(password !== undefined && { pass: password }),
      ...(token !== undefined && { token }),
      ...((tls || caFile !== undefined) && { tls: caFile === undefined ? {} : { caFile } }),
    });
  }

  async #prepared(connection: NatsConnection, signal: AbortSignal): Promise<JetStreamSession> {
    const { transport, jetstream } = this.#packages;
    const { info } = connection;
    requireVersion(info?.version ?? '', connection.getServer());
    if ((info?.max_payload ?? 0) < leastPayload)
      throw new TallymanError(
        'BAD_CONFIG',
        `the NATS server ${connection.getServer()} takes messages of ${info?.max_payload} bytes; a fact, or a chunk of an object, may need ${leastPayload}. ` +
          'Put "max_payload: 2MB" into its configuration.',
      );
    // It asks for the account: a server that is cut off from the others refuses here, and another one is tried.
    const manager = await jetstream.jetstreamManager(connection, { timeout: 3000 });
    const synced = await checkSync(this.#options.monitorUrls, signal);
    this.#requireEnough(synced, info?.server_id ?? '');

    const ended = Promise.withResolvers<string>();
    connection.closed().then((error) => {
      ended.resolve(error ? messageOf(error) : 'the server closed the connection');
    });
    const hear = (subject: string, listener: (subject: string) => void) =>
      connection.subscribe(subject, {
        callback: (error: Error | null, message: Msg) => {
          if (error) ended.resolve(messageOf(error));
          else listener(message.subject);
        },
      });
    const listener = this.#listener;
    if (listener) {
      hear(everyHead, (subject) => listener.onHead(subject));
      hear(everyHint, (subject) => listener.onHint(subject));
      await connection.flush();
      listener.onSession();
    }
    const recheck = setInterval(() => {
      checkSync(this.#options.monitorUrls, signal).catch((error: unknown) => {
        if (!signal.aborted) ended.resolve(messageOf(error));
      });
    }, recheckMs);
    recheck.unref();
    ended.promise.then(() => clearInterval(recheck));
    signal.addEventListener('abort', () => clearInterval(recheck), { once: true });
    let failingSince: number | undefined;
    return {
      connection,
      manager,
      synced,
      ended: ended.promise,
      close: () => connection.close(),
      nextId: () => transport.nuid.next(),
      headers: () => transport.headers(),
      noteFailure: (error) => {
        failingSince ??= performance.now();
        if (performance.now() - failingSince > failuresMs) ended.resolve(messageOf(error));
      },
      noteSuccess: () => {
        failingSince = undefined;
      },
    };
  }

  /** A majority must have said it; the others may be down. */
  #requireEnough({ ids, silent }: SyncCheck, connectedTo: string): void {
    const { replicas, monitorUrls } = this.#options;
    const needed = Math.floor(replicas / 2) + 1;
    const why = silent.length === 0 ? '' : ` No answer from: ${silent.join(', ')}.`;
    if (ids.size < needed)
      throw new TallymanError(
        'BAD_CONFIG',
        `it cannot be confirmed that the NATS servers say sync_always: ${ids.size} of ${monitorUrls.length} servers in ` +
          `boundary.jetstream.monitorUrls did, and ${needed} must.${why}`,
      );
    if (!ids.has(connectedTo) && silent.length === 0)
      throw new TallymanError(
        'BAD_CONFIG',
        'boundary.jetstream.monitorUrls names other servers than boundary.jetstream.servers: the one that answered there is not among them',
      );
  }
}

async function loadPackages(key: string): Promise<Packages> {
  const load = async <T>(name: string, loading: Promise<T>): Promise<T> => {
    try {
      return await loading;
    } catch (error) {
      throw missingPackage(error, name, `${key} = jetstream`);
    }
  };
  return {
    transport: await load('@nats-io/transport-node', import('@nats-io/transport-node')),
    jetstream: await load('@nats-io/jetstream', import('@nats-io/jetstream')),
  };
}

async function readCredentials(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    throw new TallymanError(
      'BAD_CONFIG',
      `boundary.jetstream.credentialsFile (${path}) cannot be used: ${messageOf(error)}`,
    );
  }
}
