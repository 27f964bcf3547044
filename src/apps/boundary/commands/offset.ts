import { InvalidArgumentError } from 'commander';

/** An offset, or 0: before the first fact. */
export function offset(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('Expected an offset: a whole number.');
  return Number(text);
}

/** The offset of a fact: from 1 on. */
export function factOffset(text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new InvalidArgumentError('Expected the offset of a fact.');
  return Number(text);
}
