import { TallymanError } from '../errors.ts';
import { requireText } from '../validate.ts';
import { keyPrefixOf } from './entry.ts';

/** A stream by its name, of the tenant `default`, with keys of its own; or with everything said. */
export type StreamRef = string | StreamName;

export interface StreamName {
  readonly name: string;
  /** Default `default`. */
  readonly tenantId?: string;
  /** A key is unique among the tenant's streams of one key space. Default: the stream's name. */
  readonly keySpace?: string;
}

/** What the log needs of a stream with each call. */
export interface ResolvedStream {
  readonly tenantId: string;
  readonly name: string;
  readonly keySpace: string;
  readonly keyPrefix: string;
  /** Names it among all streams. */
  readonly id: string;
}

const resolvedNames = new Map<string, ResolvedStream>();
const resolvedRefs = new WeakMap<StreamName, ResolvedStream>();
const mostNames = 1000;

/** Remembers what it has checked: it is asked with every append. */
export function resolve(ref: StreamRef): ResolvedStream {
  const known = typeof ref === 'string' ? resolvedNames.get(ref) : resolvedRefs.get(ref);
  if (known) return known;
  const resolved = check(ref);
  if (typeof ref === 'object') resolvedRefs.set(ref, resolved);
  else if (resolvedNames.size < mostNames) resolvedNames.set(ref, resolved);
  return resolved;
}

function check(ref: StreamRef): ResolvedStream {
  const { name, tenantId = 'default', keySpace = name } = typeof ref === 'string' ? { name: ref } : ref;
  requireText(name, 'stream', 256);
  requireText(tenantId, 'tenantId', 256);
  requireText(keySpace, 'keySpace', 256);
  if (!`${name}${keySpace}${tenantId}`.isWellFormed())
    throw new TallymanError('BAD_OPTION', 'the name of a stream must be well-formed Unicode');
  return {
    tenantId,
    name,
    keySpace,
    keyPrefix: keyPrefixOf(tenantId, keySpace),
    id: JSON.stringify([tenantId, name]),
  };
}

export interface Head {
  /** The first offset that was not trimmed. */
  readonly first: number;
  /** The last offset; 0 when nothing was ever appended. */
  readonly last: number;
}

export interface StreamInfo extends Head {
  readonly tenantId: string;
  readonly name: string;
  readonly keySpace: string;
  /** Changes when offsets could be issued a second time; see `Log.newEpoch`. */
  readonly epoch: string;
  /** In hex: the chain hash of the last entry. */
  readonly chain: string;
  /** Of the payloads that were not trimmed. */
  readonly bytes: number;
  /** When the last entry was appended. */
  readonly appendedAt: Date | undefined;
}
