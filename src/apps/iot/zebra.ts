/**
 * Reads of Zebra FX readers, usually on `zebra/fx/{device}/reads`. One message is a read, an array of reads, or a read whose
 * `data.tagData` lists tags that share its time:
 *
 *     {"type": "SIMPLE", "timestamp": "…", "data": {"idHex": "…", "antenna": 1, "peakRssi": -52, "eventNum": 17}}
 *
 * Errors are reported item by item: one bad tag does not affect the others.
 */
import { messageOf } from '../../engine/errors.ts';
import { formatInstant, parseInstant } from '../../engine/instant.ts';
import type { RawTagRead } from './tag-reads.ts';

export interface RejectedItem {
  /** Its place in the message; null: the message as a whole. */
  readonly index: number | null;
  readonly reason: string;
}

export interface ZebraReads {
  readonly reads: readonly RawTagRead[];
  readonly rejected: readonly RejectedItem[];
}

export interface ZebraOptions {
  readonly tenantId: string;
  /** Default: the one of a topic `zebra/fx/{device}/reads`. */
  readonly deviceId?: string;
  /** Longer messages are refused without parsing. Default 4 MiB: more than 10,000 reads. */
  readonly maxBytes?: number;
}

const defaultMaxBytes = 4 * 1024 * 1024;
/** Longer than any tag; whether it is a valid one is decided later. */
const longestEpc = 256;
const longestDevice = 256;

/** The device of a topic `zebra/fx/{device}/reads`; undefined for other topics. */
export function deviceOfTopic(topic: string): string | undefined {
  const [maker, model, device, what, ...more] = topic.split('/');
  if (maker !== 'zebra' || model !== 'fx' || what !== 'reads' || more.length > 0) return undefined;
  return device?.trim() || undefined;
}

export function parseZebraReads(topic: string, payload: Buffer, options: ZebraOptions): ZebraReads {
  const deviceId = options.deviceId ?? deviceOfTopic(topic);
  if (deviceId === undefined) return refused(`topic "${topic}" is not zebra/fx/{device}/reads`);
  if (deviceId.includes('\0') || Buffer.byteLength(deviceId) > longestDevice)
    return refused('the topic names a device that cannot be one');
  const { maxBytes, tenantId } = options;
  const parsed = parseJson(payload, maxBytes);
  if ('flaw' in parsed) return refused(parsed.flaw);
  const { message } = parsed;
  const tags = (Array.isArray(message) ? message : [message]).flatMap(tagsOf);
  const reads: RawTagRead[] = [];
  const rejected: RejectedItem[] = [];
  for (const [index, tag] of tags.entries()) {
    const read = readOf(tag);
    if (typeof read === 'string') rejected.push({ index, reason: read });
    else reads.push({ tenantId, deviceId, ...read });
  }
  return { reads, rejected };
}

/** The JSON of a message, or why there is none. */
export function parseJson(
  payload: Buffer,
  maxBytes = defaultMaxBytes,
): { readonly message: unknown } | { readonly flaw: string } {
  if (payload.length > maxBytes)
    return { flaw: `the message has ${payload.length} bytes; at most ${maxBytes} are read` };
  try {
    return { message: JSON.parse(payload.toString('utf8')) };
  } catch (error) {
    return { flaw: `the message is not JSON: ${messageOf(error)}` };
  }
}

const refused = (reason: string): ZebraReads => ({ reads: [], rejected: [{ index: null, reason }] });

/** One tag, not validated yet; or the reason why there is none. */
type Tag = string | { readonly timestamp: unknown; readonly data: Record<string, unknown> };

function tagsOf(item: unknown): Tag[] {
  if (!isRecord(item)) return [`a read must be an object, got ${kindOf(item)}`];
  const { timestamp, data } = item;
  if (!isRecord(data)) return [`data must be an object, got ${kindOf(data)}`];
  if (data.tagData === undefined) return [{ timestamp, data }];
  if (!Array.isArray(data.tagData)) return [`data.tagData must be an array, got ${kindOf(data.tagData)}`];
  return data.tagData.map((tag) =>
    isRecord(tag)
      ? { timestamp: tag.timestamp ?? timestamp, data: tag }
      : `a tag of data.tagData must be an object, got ${kindOf(tag)}`,
  );
}

function readOf(tag: Tag): string | Omit<RawTagRead, 'tenantId' | 'deviceId'> {
  if (typeof tag === 'string') return tag;
  const { timestamp, data } = tag;
  const { idHex, format } = data;
  if (typeof idHex !== 'string') return `idHex must be a text, got ${kindOf(idHex)}`;
  const epcHex = idHex.trim().toUpperCase();
  if (epcHex === '') return 'idHex is empty';
  if (epcHex.length > longestEpc) return `idHex has ${epcHex.length} characters`;
  if (epcHex.includes('\0')) return 'idHex contains a NUL character';
  if (format !== undefined && format !== 'epc')
    return `format must be "epc", got ${JSON.stringify(format)?.slice(0, 60)}`;
  if (typeof timestamp !== 'string') return `timestamp must be a text, got ${kindOf(timestamp)}`;
  let at: number;
  try {
    at = parseInstant(timestamp);
  } catch (error) {
    return messageOf(error);
  }
  return {
    epcHex: epcHex.toWellFormed(),
    eventTimestamp: formatInstant(at),
    antenna: wholeWithin(data.antenna, 0, 32_767),
    rssi: finite(data.peakRssi),
    eventNumber: wholeWithin(data.eventNum, 0, Number.MAX_SAFE_INTEGER),
  };
}

/** Not needed to locate a basket: a value that is not a number is left out, and the read is kept. */
const finite = (value: unknown): number | null =>
  typeof value === 'number' && (value === 0 || (Math.abs(value) > 1e-30 && Math.abs(value) < 1e30))
    ? value
    : null;
const wholeWithin = (value: unknown, min: number, max: number): number | null =>
  Number.isInteger(value) && (value as number) >= min && (value as number) <= max ? (value as number) : null;

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a ${typeof value}`;
}
