import { TallymanError } from '../../../engine/errors.ts';

/** A template, or what it is to be filled with, cannot make an image; says what is wrong and where. */
export class TemplateError extends TallymanError {
  override readonly name = 'TemplateError';

  constructor(message: string, options: { line?: number; placeholder?: string; cause?: unknown } = {}) {
    const { line, placeholder, cause } = options;
    super('LABEL_TEMPLATE', line === undefined ? message : `Line ${line}: ${message}`, {
      cause,
      details: { ...(line !== undefined && { line }), ...(placeholder !== undefined && { placeholder }) },
    });
  }
}
