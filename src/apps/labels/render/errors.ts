import { TallymanError } from '../../../engine/errors.ts';

const longestMessage = 1000;

/** A template, or what it is to be filled with, cannot make an image; says what is wrong and where. */
export class TemplateError extends TallymanError {
  override readonly name = 'TemplateError';

  constructor(message: string, options: { line?: number; placeholder?: string; cause?: unknown } = {}) {
    const { line, placeholder, cause } = options;
    // Messages quote the template, whose every part may be long.
    const said = message.length > longestMessage ? `${message.slice(0, longestMessage)}…` : message;
    super('LABEL_TEMPLATE', line === undefined ? said : `Line ${line}: ${said}`, {
      cause,
      details: { ...(line !== undefined && { line }), ...(placeholder !== undefined && { placeholder }) },
    });
  }

  /** As a drawing process has reported it. */
  static reported(message: string, details: Readonly<Record<string, unknown>> = {}): TemplateError {
    return Object.assign(new TemplateError(message), { details });
  }
}

/** An image took more time or memory than one may. Another attempt may succeed: the machine may have been busy. */
export class TooCostlyError extends TallymanError {
  override readonly name = 'TooCostlyError';

  constructor(what: string) {
    super('LABEL_TOO_COSTLY', `The image was given up: it took ${what}. Make the template simpler.`);
  }
}

/** Throws if there are characters that no font has; a box on a shelf tells nobody what is wrong. */
export function refuseMissing(characters: readonly string[], line?: number): void {
  if (characters.length === 0) return;
  const named = characters
    .slice(0, 5)
    .map((character) => `"${character}" (U+${hexOf(character)})`)
    .join(', ');
  throw new TemplateError(
    `There is no glyph for ${named}${characters.length > 5 ? ` and ${characters.length - 5} more` : ''} in the fonts of Tallyman; write the text without.`,
    line === undefined ? {} : { line },
  );
}

const hexOf = (character: string): string =>
  (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
