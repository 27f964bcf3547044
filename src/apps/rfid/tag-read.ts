import type { Micros } from '../../engine/instant.ts';

/** Which way a read came. */
export type ProcessorType = 'MQTT' | 'Replay';

/** A tag read as it is handed in. */
export interface TagRead {
  /** The id of its row in `iot.tag_reads`, when it comes from there. */
  readonly zbTagReadId?: string | undefined;
  /** Hex digits. */
  readonly epc: string;
  /** The URI as the sender gives it. The stored URI is always decoded from `epc`. */
  readonly epcUri?: string | undefined;
  readonly deviceId: string;
  /** ISO 8601 with a zone; microseconds count. */
  readonly eventTimestamp: string;
  readonly processorType: ProcessorType;
  readonly tenantId: string;
}

/** Why a read that was processed moved nothing. */
export type SkipReason =
  /** It has been processed before, by this path or the other. */
  | 'duplicate'
  /** The basket was seen later than this, or at the same instant elsewhere. */
  | 'stale'
  | 'same location'
  /** It repeats the basket's last movement, less than five minutes later. */
  | 'same movement';

/** The answer for one read. */
export interface ReadResult {
  /** False: it failed. It takes no dedupe key and may be sent again. */
  readonly success: boolean;
  readonly basketId: string | null;
  /** The movement it made, or the one it repeats. */
  readonly movementId: string | null;
  readonly isNewBasket: boolean;
  readonly skipReason: SkipReason | null;
  readonly errorMessage: string | null;
}

/** A read in canonical form, with everything that the decision needs. */
export interface ExaminedRead {
  readonly tenantId: string;
  readonly zbTagReadId: string | null;
  readonly epcHex: string;
  readonly epcUri: string;
  readonly deviceId: string;
  /** The device's, such as `return-door`. */
  readonly role: string;
  readonly locationId: string;
  readonly at: Micros;
  readonly timestamp: string;
  readonly contentHash: string;
  readonly processorType: ProcessorType;
  /** Names its basket, tenant included. */
  readonly basketKey: string;
  /** Names its content, tenant included. */
  readonly contentKey: string;
}

export const basketKeyOf = (tenantId: string, epcHex: string): string => `${epcHex} ${tenantId}`;
export const contentKeyOf = (tenantId: string, contentHash: string): string => `${contentHash} ${tenantId}`;

export type FailureCode =
  | 'BAD_EPC'
  | 'BAD_TIMESTAMP'
  | 'BAD_READ'
  | 'UNKNOWN_DEVICE'
  | 'DEVICE_WITHOUT_LOCATION';

/** A read that could not be processed. */
export interface FailedRead {
  readonly read: TagRead;
  readonly contentHash: string;
  readonly code: FailureCode;
  readonly message: string;
  /** Null: it had none that could be read. */
  readonly timestamp: string | null;
  /** True if a retry may succeed: somebody may register the device. False for a bad tag or time. */
  readonly retryable: boolean;
}
