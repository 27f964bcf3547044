import { messageOf, TallymanError } from '../../engine/errors.ts';
import { formatInstant, type Micros, parseInstant } from '../../engine/instant.ts';
import { contentHash } from './content-hash.ts';
import { canonicalEpc, type Epc } from './epc.ts';
import type { Device } from './reference/devices.ts';
import {
  basketKeyOf,
  contentKeyOf,
  type ExaminedRead,
  type FailedRead,
  type FailureCode,
  type TagRead,
} from './tag-read.ts';
import { decodeTag, defaultTags, type TagFilter } from './tags.ts';

/** What becomes of a read whose time is ahead of its arrival: as it is, at the time of its arrival, or not at all. */
export const clockPolicies = ['keep', 'clamp', 'refuse'] as const;
export interface ClockRule {
  readonly policy: (typeof clockPolicies)[number];
  /** Up to this far ahead a time is taken as it is. */
  readonly aheadLimit: Micros;
}

export interface ExamineOptions {
  readonly now: Micros;
  /** How far a reader's clock may be ahead of ours. */
  readonly futureTolerance: Micros;
  /** Before this a reader's clock had not been set. */
  readonly earliest: Micros;
  /** Default: keep, up to `futureTolerance`. */
  readonly clock?: ClockRule | undefined;
  /** Default: tags of GS1. */
  readonly tags?: TagFilter | undefined;
  readonly deviceOf: (tenantId: string, deviceId: string) => Device | undefined;
}

export type Examined =
  | { readonly ok: true; readonly read: ExaminedRead }
  | { readonly ok: false; readonly failure: FailedRead };

/** Limits for text from devices and senders, which ends up in the database and in messages: its length, and no NUL. */
const longestText = 256;

/** Puts a read into canonical form, or says why it cannot be processed. Pure. */
export function examine(given: TagRead, options: ExamineOptions): Examined {
  const flaw = flawOf(given);
  if (flaw !== undefined) return failed(given, 'BAD_READ', flaw);
  const deviceId = given.deviceId.trim();
  let told: Micros | undefined;
  let at: Micros;
  let epc: Epc;
  try {
    told = parseInstant(given.eventTimestamp);
    at = effectiveTime(told, given, options);
    epc = decodeTag(options.tags ?? defaultTags, given.epc);
  } catch (error) {
    return failed(given, (error as TallymanError).code as FailureCode, messageOf(error), told);
  }
  const device = options.deviceOf(given.tenantId, deviceId);
  if (!device)
    return failed(
      given,
      'UNKNOWN_DEVICE',
      `device "${deviceId}" is not known; register it and send the read again`,
      told,
    );
  if (device.locationId === null)
    return failed(
      given,
      'DEVICE_WITHOUT_LOCATION',
      `device "${deviceId}" has no location; give it one and send the read again`,
      told,
    );
  // Its identity has the time that the reader told: the same read arrives again at another time.
  const hash = contentHash({ deviceId, epcHex: epc.hex, timestamp: formatInstant(told) });
  return {
    ok: true,
    read: {
      tenantId: given.tenantId,
      zbTagReadId: given.zbTagReadId ?? null,
      epcHex: epc.hex,
      epcUri: epc.uri,
      deviceId,
      role: device.role,
      locationId: device.locationId,
      at,
      contentHash: hash,
      processorType: given.processorType,
      basketKey: basketKeyOf(given.tenantId, epc.hex),
      contentKey: contentKeyOf(given.tenantId, hash),
    },
  };
}

function flawOf({ zbTagReadId, epc, deviceId, eventTimestamp, processorType, tenantId }: TagRead) {
  const flaw =
    flawOfText('epc', epc) ??
    flawOfText('deviceId', deviceId) ??
    flawOfText('eventTimestamp', eventTimestamp) ??
    flawOfText('tenantId', tenantId);
  if (flaw !== undefined) return flaw;
  if (zbTagReadId !== undefined && !/^\d{1,18}$/.test(zbTagReadId))
    return `zbTagReadId must be a whole number, got "${zbTagReadId}"`;
  if (processorType !== 'MQTT' && processorType !== 'Replay')
    return `processorType must be MQTT or Replay, got "${String(processorType)}"`;
  return undefined;
}

function flawOfText(name: string, value: unknown): string | undefined {
  if (typeof value !== 'string') return `${name} must be a text, got ${typeof value}`;
  if (value.trim() === '') return `${name} is empty`;
  if (value.length > longestText) return `${name} is longer than ${longestText} characters`;
  if (value.includes('\0')) return `${name} contains a NUL character`;
  return undefined;
}

/** When the read counts as made. */
function effectiveTime(told: Micros, given: TagRead, options: ExamineOptions): Micros {
  const { now, futureTolerance, earliest, clock } = options;
  const text = given.eventTimestamp;
  if (told < earliest)
    throw new TallymanError(
      'BAD_TIMESTAMP',
      `"${text}" is before ${formatInstant(earliest)}; is the reader's clock set?`,
    );
  const arrival = given.receivedAt ?? now;
  if (clock && told - arrival > clock.aheadLimit) {
    if (clock.policy === 'clamp') return arrival;
    if (clock.policy === 'refuse')
      throw new TallymanError(
        'BAD_TIMESTAMP',
        `"${text}" is ${Math.round((told - arrival) / 1e6)} s ahead of the server; set the reader's clock`,
      );
  }
  if (told > now + futureTolerance)
    throw new TallymanError('BAD_TIMESTAMP', `"${text}" lies in the future; is the reader's clock right?`);
  return told;
}

function failed(read: TagRead, code: FailureCode, message: string, at?: Micros): Examined {
  const timestamp = at === undefined ? null : formatInstant(at);
  const content = {
    deviceId: String(read.deviceId).trim(),
    epcHex: canonicalEpc(String(read.epc)),
    timestamp: timestamp ?? String(read.eventTimestamp),
  };
  const retryable = code === 'UNKNOWN_DEVICE' || code === 'DEVICE_WITHOUT_LOCATION';
  return {
    ok: false,
    failure: { read, contentHash: contentHash(content), code, message, timestamp, retryable },
  };
}
