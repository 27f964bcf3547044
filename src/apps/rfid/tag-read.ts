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
  /** When it arrived, by our clock. Default: now. */
  readonly receivedAt?: Micros | undefined;
}

/** Why a read that was processed moved nothing. */
export type SkipReason =
  /** It has been processed before, by this path or the other. */
  | 'duplicate'
  /** It came too late to be put in its place: from beyond the horizon, or the reads around it have been deleted. */
  | 'stale'
  | 'same location'
  /** It repeats a movement that was made less than the window before (`rfid.movementWindowMs`). */
  | 'same movement'
  /** The basket has not stayed there long enough to have moved (`rfid.minimumStayMs`). A later read may still show that it has. */
  | 'short stay';

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
  /** How many movements the late reads of its basket changed or withdrew; told with the first of them. */
  readonly corrections?: number;
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
  readonly contentHash: string;
  readonly processorType: ProcessorType;
  /** Names its basket, tenant included. */
  readonly basketKey: string;
  /** Names its content, tenant included. */
  readonly contentKey: string;
}

/** The role of devices at which baskets come back. */
export const returnDoorRole = 'return-door';

export const isReturn = ({ role }: ExaminedRead): boolean => role === returnDoorRole;

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
