/** Ids of the exclusive sections, the same in every process that works on the database. */
export const lockIds = {
  returnDoor: 0x42425530001n,
  oracle: 0x42425530002n,
  replay: 0x42425530003n,
  shipmentLifecycle: 0x42425530004n,
} as const;

const firstDeviceLock = 0x42425540000n;
const deviceLocks = 0x10000;

/** The lock of a device. Two devices may share a lock id: then they only wait for each other. */
export const deviceLockId = (serial: string): bigint =>
  firstDeviceLock + BigInt(stableHash(serial.trim()) % deviceLocks);

/** FNV-1a of the UTF-8 bytes, unsigned 32 bits: the same in every version and every language. */
export function stableHash(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text, 'utf8')) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}
