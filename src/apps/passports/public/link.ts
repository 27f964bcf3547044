/** What a GS1 Digital Link names: a model by its GTIN, or one battery of it by its serial number. */
export interface LinkedItem {
  readonly gtin: string;
  readonly serial: string | null;
}

const gtin14 = /^\d{14}$/;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Characters that no serial number has: controls, and what PostgreSQL cannot keep. */
const unusable = /[\p{Cc}\p{Cs}]/u;

export function linkedItem(gtin: string, serial: string | null): LinkedItem | undefined {
  const fits =
    gtin14.test(gtin) &&
    (serial === null || (serial !== '' && Buffer.byteLength(serial) <= 128 && !unusable.test(serial)));
  return fits ? { gtin, serial } : undefined;
}

/** Of `https://host/01/<GTIN>/21/<serial>`, or of the path alone. Whose host it is does not matter. */
export function parseLink(text: string): LinkedItem | undefined {
  const [, gtin = '', escaped] =
    /^(?:https?:\/\/[^/?#]+)?\/?01\/(\d+)(?:\/21\/([^/?#]+))?\/?(?:[?#].*)?$/i.exec(text) ?? [];
  if (escaped === undefined) return linkedItem(gtin, null);
  try {
    return linkedItem(gtin, decodeURIComponent(escaped));
  } catch {
    return undefined;
  }
}

/** How a request names a passport: by its link, or by its id (`urn:uuid:` before it or not). */
export type PassportName = { readonly link: LinkedItem } | { readonly id: string };

export function parseName(text: string): PassportName | undefined {
  const id = text.replace(/^urn:uuid:/i, '');
  if (uuid.test(id)) return { id: id.toLowerCase() };
  const link = parseLink(text);
  return link && { link };
}
