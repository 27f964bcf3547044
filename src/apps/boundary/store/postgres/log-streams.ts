/** Names of streams in the engine's log. */
import type { StreamInfo, StreamName } from '../../../../engine/log/stream.ts';
import type { BufferRole, StreamId } from '../store.ts';

const prefix = 'boundary/';

/** A message id is unique among everything that comes from one zone. */
const keySpaceOf = (buffer: BufferRole, from: string): string => `${prefix}${buffer}/${from}`;

/** Zones are slugs, so there is one way to read the name. */
const nameOf = ({ buffer, from, to }: StreamId): string => `${keySpaceOf(buffer, from)}/${to}`;

const pattern = /^boundary\/(store|forward)\/([^/]+)\/([^/]+)$/;

export function streamIdOf({ tenantId, name }: StreamInfo | StreamName): StreamId | undefined {
  const [, buffer, from, to] = pattern.exec(name) ?? [];
  if (buffer === undefined || from === undefined || to === undefined) return undefined;
  return { tenantId: tenantId ?? 'default', buffer: buffer as BufferRole, from, to };
}

const mostNames = 10_000;

/** Always the same object for one stream: the log remembers what it has checked about it. */
export class LogStreams {
  readonly #known = new Map<string, StreamName>();

  of(stream: StreamId): StreamName {
    const name = nameOf(stream);
    const id = `${name} ${stream.tenantId}`;
    const known = this.#known.get(id);
    if (known) return known;
    if (this.#known.size >= mostNames) this.#known.clear();
    const made = { name, tenantId: stream.tenantId, keySpace: keySpaceOf(stream.buffer, stream.from) };
    this.#known.set(id, made);
    return made;
  }

  /** Any stream of a key space, to look for keys in it. */
  ofKeySpace(tenantId: string, buffer: BufferRole, from: string): StreamName {
    const keySpace = keySpaceOf(buffer, from);
    return { name: keySpace, tenantId, keySpace };
  }
}
