import { messageOf, TallymanError } from '../errors.ts';
import type { Kind } from './kind.ts';
import { type Checked, check } from './standard-schema.ts';

/** `text` is stored; `value` is what the kind's schema makes of it. */
export interface AcceptedPayload<Output> {
  readonly ok: true;
  readonly text: string;
  readonly value: Output;
}

export type CheckedPayload<Output> = AcceptedPayload<Output> | Exclude<Checked<Output>, { ok: true }>;

/**
 * Checks a payload against the schema of its kind, as it is stored: as JSON. A worker will parse the same text, so what is
 * accepted here is not refused there. Returns a promise only if the schema does.
 */
export function checkPayload<Output, Input>(
  kind: Kind<Output, Input>,
  payload: Input,
): CheckedPayload<Output> | Promise<CheckedPayload<Output>> {
  const text = written(kind.name, payload);
  const { schema } = kind;
  // Without a schema, input and output are one type.
  if (!schema) return { ok: true, text, value: payload as unknown as Output };
  const judge = (checked: Checked<Output>): CheckedPayload<Output> => {
    if (checked.ok) return { ok: true, text, value: checked.value };
    return wouldPass(schema, payload) ? { ...checked, problem: `${checked.problem}. ${asStored}` } : checked;
  };
  const checked = check(schema, JSON.parse(text));
  return checked instanceof Promise ? checked.then(judge) : judge(checked);
}

function written(kind: string, payload: unknown): string {
  let text: string | undefined;
  let cause: unknown = 'it is a function or a symbol';
  try {
    text = JSON.stringify(payload ?? null);
  } catch (error) {
    cause = error;
  }
  if (text !== undefined) return text;
  throw new TallymanError(
    'VALIDATION_ERROR',
    `payload of kind "${kind}" cannot be written as JSON: ${messageOf(cause)}`,
    { cause },
  );
}

const asStored =
  'It is checked as it is stored, as JSON, where a Date is a text and undefined is left out or null; let the schema accept that';

/** What the caller passed fits, and its JSON does not. */
function wouldPass(schema: NonNullable<Kind['schema']>, payload: unknown): boolean {
  const checked = check(schema, payload);
  return !(checked instanceof Promise) && checked.ok;
}
