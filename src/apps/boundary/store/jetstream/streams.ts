/** JetStream streams: made when they are needed, and used only if they keep what they are given. */
import type { StreamConfig, StreamInfo } from '@nats-io/jetstream';
import { messageOf, TallymanError } from '../../../../engine/errors.ts';
import { isStreamNotFound, isUnavailable } from './errors.ts';
import type { Names } from './names.ts';
import type { JetStreamSession } from './session.ts';

/**
 * What a stream must be. Replaced messages are heads of facts, and records of objects: every other subject is written once.
 */
const wanted = {
  storage: 'file',
  retention: 'limits',
  discard: 'old',
  max_msgs_per_subject: 1,
  max_msgs: -1,
  max_bytes: -1,
  max_age: 0,
  max_msg_size: -1,
  allow_atomic: true,
  allow_direct: true,
  deny_delete: true,
} as const satisfies Partial<StreamConfig>;

export async function ensureStream(
  session: JetStreamSession,
  { stream, subjects }: Pick<Names, 'stream' | 'subjects'>,
  replicas: number,
): Promise<void> {
  const { streams } = session.manager;
  const info = await streams.info(stream).catch((error: unknown) => {
    if (isStreamNotFound(error)) return undefined;
    throw error;
  });
  const config = { ...wanted, name: stream, subjects: [...subjects], num_replicas: replicas };
  try {
    // Two processes may come at once: making it again as it is succeeds.
    requireSafe(session, info ?? (await streams.add(config)), replicas);
  } catch (error) {
    if (isUnavailable(error) || error instanceof TallymanError) throw error;
    throw new TallymanError(
      'BAD_CONFIG',
      `the JetStream stream "${stream}" with ${replicas} replicas (boundary.jetstream.replicas) cannot be made: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/** Throws if facts or objects could be lost or replaced there. */
export function requireSafe(session: JetStreamSession, info: StreamInfo, replicas: number): void {
  const { config, cluster } = info;
  const refuse = (what: string): never => {
    throw new TallymanError('BAD_CONFIG', `the JetStream stream "${config.name}" ${what}`);
  };
  if (config.num_replicas !== replicas)
    refuse(
      `has ${config.num_replicas} replicas, and boundary.jetstream.replicas is ${replicas}: change one of them ` +
        `(nats stream edit ${config.name} --replicas ${replicas})`,
    );
  for (const [name, value] of Object.entries(wanted)) {
    const found = config[name as keyof typeof wanted];
    if (found !== value) refuse(`has ${name} = ${found}, and must have ${value}`);
  }
  // Of a stream with one replica: acknowledged before it is written.
  if (config.persist_mode === 'async')
    refuse('has persist_mode = async: what was acknowledged could be lost');
  const { names, silent } = session.synced;
  const peers = [cluster?.leader ?? '', ...(cluster?.replicas ?? []).map(({ name }) => name)];
  const unknown = peers.filter((name) => name !== '' && !names.has(name));
  if (unknown.length > silent.length)
    refuse(
      `lies on servers that boundary.jetstream.monitorUrls does not name (${unknown.join(', ')}): ` +
        'it cannot be confirmed that they say sync_always',
    );
}
