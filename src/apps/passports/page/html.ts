/** Text that is HTML already. Everything else that goes into `html` is escaped. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Part = string | number | Html | null | undefined | false | readonly Part[];

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** A control character other than tab and line break has no place in HTML. */
const control = /[^\P{Cc}\t\n\r]/gu;

export const escapeHtml = (text: string): string =>
  text.replace(control, '\ufffd').replace(/[&<>"']/g, (each) => entities[each] ?? each);

function fill(part: Part): string {
  if (part instanceof Html) return part.text;
  if (Array.isArray(part)) return part.map(fill).join('');
  if (part === null || part === undefined || part === false) return '';
  return escapeHtml(String(part));
}

export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.map((text, at) => text + (at < parts.length ? fill(parts[at]) : '')).join(''));
}

/** Text in which long addresses and numbers may break where a reader expects it. */
export const breakable = (text: string): Html =>
  new Html(
    escapeHtml(text)
      .replace(/(?<=[^\s/])\/(?=[^\s/])/g, '/<wbr>')
      .replace(/(?<=\w{4})-(?=\w{2})/g, '-<wbr>')
      .replace(/(?<=\d) (?=%)/g, '&nbsp;'),
  );
