import type { FieldResult, Hash, Json } from '../compile/index.ts';
import type { Derivation, Step } from './derivation.ts';
import { breakable, type Html, html } from './html.ts';
import { type Language, texts } from './texts.ts';
import {
  formatField,
  formatMissing,
  formatValue,
  isLink,
  isMaterial,
  isQuantity,
  titleOf,
} from './values.ts';
import type { FieldView } from './view.ts';

/** Rows of title and value. A row opens: how the value was made, as a tree down to document and row. */
export function fieldRows(
  fields: readonly FieldView[],
  names: ReadonlyMap<Hash, string>,
  language: Language,
): Html {
  return html`<div class="fields">${fields.map((field) => fieldRow(field, names, language))}</div>`;
}

function fieldRow(
  { name, result, derivation }: FieldView,
  names: ReadonlyMap<Hash, string>,
  language: Language,
): Html {
  const text = textOf(name, result, language);
  const shown = html`<span class="name">${titleOf(name, language)}</span><span class="${result.status === 'value' ? 'value' : 'none'}">${linked(text)}</span>`;
  // On a phone a long text stands below its name.
  const row = text.length > 24 ? 'row long' : 'row';
  const more = table(result, language);
  if (!derivation && more === '')
    return html`<div class="field" id="${name}"><div class="${row}">${shown}</div></div>\n`;
  const isNumber = result.status === 'value' && isQuantity(result.value);
  return html`<details class="field" id="${name}"><summary class="${row}">${shown}</summary><div class="how">${more}${
    derivation && how(derivation, isNumber, names, language)
  }</div></details>\n`;
}

/** What stands in the row itself: of a list of materials only how many they are. */
function textOf(name: string, result: FieldResult, language: Language): string {
  if (result.status !== 'value') return formatMissing(result, language);
  const { value } = result;
  if (isMaterials(value)) return texts[language].records(value.length);
  return Array.isArray(value)
    ? value.map((each) => formatField(name, each, language)).join(', ') || '–'
    : formatField(name, value, language);
}

/** Web addresses in a text become links; nothing else does. */
const linked = (text: string): readonly Html[] =>
  text.split(/(https?:\/\/[^\s"<>,;]+)/).map((part) => (isLink(part) ? link(part) : breakable(part)));

const link = (address: string): Html =>
  html`<a href="${address}" rel="nofollow noopener noreferrer">${breakable(address.replace(/^https?:\/\//, ''))}</a>`;

const isMaterials = (value: Json): value is readonly { readonly [column: string]: Json }[] =>
  Array.isArray(value) && value.length > 0 && value.every(isMaterial);

function table(result: FieldResult, language: Language): Html | '' {
  if (result.status !== 'value' || !isMaterials(result.value)) return '';
  const { component, name, cas, mass } = texts[language].material;
  const cell = (value: Json | undefined): string => formatValue(value ?? '', language);
  return html`<table><thead><tr><th>${component}</th><th>${name}</th><th>${cas}</th><th class="number">${mass}</th></tr></thead><tbody>${result.value.map(
    (row) =>
      html`<tr><td>${cell(row.component)}</td><td>${cell(row.name)}</td><td>${cell(row.cas)}</td><td class="number">${cell(row.mass)}</td></tr>`,
  )}</tbody></table>`;
}

function how(
  { expression, article, steps }: Derivation,
  isNumber: boolean,
  names: ReadonlyMap<Hash, string>,
  language: Language,
): Html {
  const say = texts[language];
  // The first step mostly is the rule itself: it is not said twice.
  const [first] = steps ?? [];
  const isSaid = first?.kind === 'expression' && first.text === expression;
  return html`<h4>${isNumber ? say.how : say.whence}</h4>
${!isSaid && html`<p>${say.rule}: <code>${expression}</code></p>`}
${steps === null ? html`<p>${say.noDerivation}</p>` : tree(steps, names, language)}
<p class="from">${say.law}: ${article}</p>`;
}

const tree = (steps: readonly Step[], names: ReadonlyMap<Hash, string>, language: Language): Html | '' =>
  steps.length === 0
    ? ''
    : html`<ul>${steps.map((step) => html`<li>${stepHtml(step, names, language)}</li>`)}</ul>`;

function stepHtml(step: Step, names: ReadonlyMap<Hash, string>, language: Language): Html {
  const say = texts[language];
  switch (step.kind) {
    case 'expression':
      return html`<code>${step.text}</code> = <b>${breakable(shortValue(step.value, language))}</b>${step.isRepeated && ` (${say.asAbove})`}${
        step.division &&
        html`<span class="from">${say.dividend(step.division.numerator, step.division.denominator)}</span>`
      }${tree(step.steps, names, language)}`;
    case 'field':
      return html`<a href="#${step.field}">${titleOf(step.field, language)}</a>${step.value !== null && ` = ${formatValue(step.value, language)}`}`;
    case 'fact':
      return html`${factText(step.key, step.value, language)}${step.sources.map(
        ({ document, row, column }) => {
          const name =
            document === null ? say.hiddenDocument : (names.get(document) ?? `SHA-256 ${document}`);
          return html`<span class="from">${say.row(name, row, column)}</span>`;
        },
      )}`;
    case 'absent':
      return html`${step.key === '*' ? '' : `${titleOf(step.key, language)}: `}${say.absent}`;
    case 'input':
      return html`<code>${step.path}</code> = <b>${breakable(formatValue(step.value, language))}</b> <span class="from">${say.fromItem}</span>`;
  }
}

/** The elements of a long list stand below it, one by one. */
function shortValue(value: Json, language: Language): string {
  if (!Array.isArray(value) || value.length <= 6) return formatValue(value, language);
  const first = value.slice(0, 3).map((each) => formatValue(each, language));
  return `${first.join('; ')}; … (${value.length})`;
}

/** A material is known by its name, component and mass; the rest is in the proof. */
function factText(key: string, fact: Json, language: Language): Html {
  const text = (value: Json | undefined): string => formatValue(value ?? '', language);
  return isMaterial(fact)
    ? html`${text(fact.name)} (${text(fact.component)}): <b>${text(fact.mass)}</b>`
    : html`${titleOf(key, language)}: <b>${breakable(text(fact))}</b>`;
}
