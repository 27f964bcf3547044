import { TallymanError } from '../../engine/errors.ts';

/** Twelve hex digits in upper case, without separators (LBL-1). */
export function normaliseMac(text: string): string {
  const digits = text.replace(/[\s:.-]/g, '').toUpperCase();
  if (!/^[0-9A-F]{12}$/.test(digits))
    throw new TallymanError(
      'BAD_OPTION',
      `"${text.slice(0, 64)}" is not the MAC of a label: expected 12 hexadecimal digits, such as 00:15:9D:A0:10:2B`,
    );
  return digits;
}

/** The lane in which a label's tasks run one after another. */
export const laneOf = (mac: string): string => `label:${mac}`;
