import { CompileError } from './errors.ts';
import { hexToBytes, isHash } from './hash.ts';
import { isUuid } from './qr.ts';
import { isDate } from './rules/shape.ts';
import { buildSnapshot } from './snapshot.ts';
import {
  batteryStatuses,
  type CompileInput,
  categories,
  type Fact,
  type Item,
  type Product,
  type Snapshot,
} from './types.ts';

/**
 * Refuses an input that is not well formed. Returns the bytes of the salt, and the facts in the order of a snapshot: a
 * database may sort them otherwise, and the order of a list shows in the proof.
 */
export function checkInput({
  passport,
  snapshot,
  product,
  item,
  model,
  issuedAt,
  build,
  signingKey,
  salt,
}: CompileInput): { readonly secret: Uint8Array; readonly facts: readonly Fact[] } {
  const problems = [
    !isUuid(passport.id) && `the passport's id "${passport.id}" is no UUID in small letters`,
    !isUuid(passport.version) && `the version's id "${passport.version}" is no UUID in small letters`,
    !isInstant(issuedAt) && `issuedAt "${issuedAt}" is no time in UTC, as in 2027-02-18T00:00:00Z`,
    build === '' && 'build is empty',
    signingKey === '' && 'signingKey is empty',
    model !== null && item === null && 'a model is named, and no item that could link to it',
    model !== null &&
      !(isUuid(model.version) && isHash(model.receipt_hash)) &&
      'the model has no version and receipt hash',
    ...productProblems(product),
    ...(item === null ? [] : itemProblems(item)),
  ].filter((problem) => problem !== false);
  const sorted = sortedSnapshot(snapshot);
  if (sorted.hash !== snapshot.hash)
    problems.push(`the snapshot's hash is ${snapshot.hash}, its facts give ${sorted.hash}`);
  const secret = hexToBytes(salt);
  if (secret?.length !== 32) problems.push('salt must have 32 bytes, as 64 hex digits');
  if (secret && problems.length === 0) return { secret, facts: sorted.facts };
  throw new CompileError('VALIDATION_ERROR', `cannot compile: ${problems.join('; ')}`, { problems });
}

const sortedSnapshots = new WeakMap<readonly Fact[], Snapshot>();

/** Hashed and sorted once for each list of facts: the items of a model share one, and it never changes. */
function sortedSnapshot({ facts }: Snapshot): Snapshot {
  const known = sortedSnapshots.get(facts);
  if (known) return known;
  const sorted = buildSnapshot(facts, []);
  sortedSnapshots.set(facts, sorted);
  return sorted;
}

export function productProblems({
  id,
  name,
  category,
  gtin,
  manufacturer,
  manufacturerId,
}: Product): readonly string[] {
  return [
    [id, name, manufacturer, manufacturerId].includes('') && 'the product lacks id, name or manufacturer',
    !categories.includes(category) && `the category "${category}" is none of ${categories.join(', ')}`,
    !isGtin14(gtin) && `the GTIN "${gtin}" has no 14 digits, or its check digit is wrong`,
  ].filter((problem) => problem !== false);
}

export function itemProblems({ serial, manufacturedOn, manufacturedAt, status }: Item): readonly string[] {
  return [
    !isSerial(serial) && `the serial number "${serial}" must have 1 to 20 of the characters that GS1 allows`,
    !isDate(`${manufacturedOn}-01`) && `manufacturedOn "${manufacturedOn}" is no month YYYY-MM`,
    manufacturedAt === '' && 'the item lacks its place of manufacture',
    !batteryStatuses.includes(status) && `the status "${status}" is none of ${batteryStatuses.join(', ')}`,
  ].filter((problem) => problem !== false);
}

/** GS1 application identifier 21: up to 20 characters of its set 82. */
export const isSerial = (text: string): boolean => /^[!"%&'()*+,\-./0-9:;<=>?A-Z_a-z]{1,20}$/.test(text);

export function isGtin14(text: string): boolean {
  if (!/^\d{14}$/.test(text)) return false;
  const sum = [...text].reduce((total, digit, at) => total + Number(digit) * (at % 2 === 0 ? 3 : 1), 0);
  return sum % 10 === 0;
}

function isInstant(text: string): boolean {
  const [, date = '', hour = '', minute = '', second = ''] =
    /^(\d{4}-\d{2}-\d{2})T(\d{2}):(\d{2}):(\d{2})Z$/.exec(text) ?? [];
  return isDate(date) && Number(hour) < 24 && Number(minute) < 60 && Number(second) < 60;
}
