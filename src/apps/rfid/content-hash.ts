import { hash } from 'node:crypto';

/** What makes two reads the same read, in its canonical form. */
export interface ReadContent {
  /** Trimmed. */
  readonly deviceId: string;
  /** Upper case. */
  readonly epcHex: string;
  /** As `formatInstant` writes it. */
  readonly timestamp: string;
}

/** SHA-256 of `deviceId|EPC|timestamp` in hex, as it goes to the database. */
export function contentHash({ deviceId, epcHex, timestamp }: ReadContent): string {
  return hash('sha256', `${deviceId}|${epcHex}|${timestamp}`, 'hex');
}

/** As users and the API see it. */
export const hashToBase64 = (hex: string): string => Buffer.from(hex, 'hex').toString('base64');
