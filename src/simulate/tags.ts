/** GRAI-96 tags of returnable baskets: one company, one type of basket, numbered. */
const header = 0x33n;
/** Seven digits for the company, five for the type. */
const partition = 5n;
const company = 614_141n;
const type = 12_345n;
const serialBits = 38n;

export const mostBaskets = 2 ** Number(serialBits);

const prefix = (((header << 6n) | partition) << 44n) | (company << 20n) | type;

/** 24 hex digits, upper case; their order is that of the serials. */
export function basketTag(serial: number): string {
  return ((prefix << serialBits) | BigInt(serial)).toString(16).toUpperCase();
}
