import { readFileSync } from 'node:fs';
import { InvalidArgumentError } from 'commander';
import { messageOf } from '../../engine/errors.ts';

export const payloadHelp = 'JSON, @file with JSON, or - for standard input (default: {})';

/** JSON as it was written: numbers of any size keep all digits. No JSON begins with `@`, and none is `-`. */
export function payloadText(given: string): string {
  const text = given === '-' ? read(0, 'standard input') : given.startsWith('@') ? readNamed(given) : given;
  try {
    JSON.parse(text);
    return text;
  } catch (error) {
    const where = text === given ? '' : given === '-' ? ' on standard input' : ` in ${given.slice(1)}`;
    throw new InvalidArgumentError(`Expected JSON${where}, such as '{"sku": "P-1"}': ${messageOf(error)}.`);
  }
}

const readNamed = (given: string): string =>
  read(given.slice(1), given.slice(1) || 'a file: name it after the @');

function read(from: string | 0, name: string): string {
  try {
    return readFileSync(from, 'utf8');
  } catch (error) {
    throw new InvalidArgumentError(`Cannot read ${name}: ${messageOf(error)}.`);
  }
}
