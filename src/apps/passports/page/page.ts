import { createHash } from 'node:crypto';
import { fieldRows } from './fields.ts';
import { breakable, Html, html } from './html.ts';
import { footprintBar, individual, section, toneOf, verification, withheld } from './sections.ts';
import { style } from './style.ts';
import { type Language, type Texts, texts } from './texts.ts';
import { formatDate, formatField, titleOf } from './values.ts';
import type { FieldView, PassportView } from './view.ts';

const styleHash = createHash('sha256').update(style).digest('base64');

/** No scripts, no frames, nothing from elsewhere; the style sheet by its hash. */
export const contentSecurityPolicy = `default-src 'none'; style-src 'sha256-${styleHash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** What a reader wants to know first. */
const keyFields = [
  'ratedEnergy',
  'certifiedEnergy',
  'mass',
  'chemistry',
  'footprintPerFunctionalUnit',
  'lifetimeCycles',
];

export function renderPage(view: PassportView, language: Language): string {
  const say = texts[language];
  const fields = new Map(view.groups.flatMap((each) => each.fields).map((field) => [field.name, field]));
  const page = html`<!doctype html>
<html lang="${language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${say.title}: ${view.product.name}${view.serial !== null && ` · ${view.serial}`}</title>
<style>${new Html(style)}</style>
</head>
<body>
<div class="top"><span>${say.title}</span>${languageLink(view, language, say)}</div>
<main>
${head(view, fields, language)}
${navigation(view, say)}
${view.groups.map(({ group, fields: shown }) =>
  section(
    `group-${group}`,
    say.groups[group],
    html`${group === 'footprint' && footprintBar(view, language)}${fieldRows(shown, view.documentNames, language)}`,
  ),
)}
${individual(view, language)}
${withheld(view, language)}
${view.state !== 'CEASED' && verification(view, language)}
</main>
</body>
</html>
`;
  return page.text;
}

function languageLink({ state, versionId }: PassportView, language: Language, say: Texts): Html {
  const other = language === 'en' ? 'de' : 'en';
  const more = state === 'ACTIVE' ? '' : `&version=${versionId}`;
  return html`<a class="language" href="?lang=${other}${more}" hreflang="${other}" lang="${other}">${say.language}</a>`;
}

function head(view: PassportView, fields: ReadonlyMap<string, FieldView>, language: Language): Html {
  const say = texts[language];
  const state = say.states[view.state];
  const tone = toneOf(view.state);
  // Next to "revoked" a green mark would say that all is well.
  const signed = view.signature !== 'valid' ? 'bad' : view.state === 'ACTIVE' ? 'good' : 'plain';
  const since = view.ceasedAt ?? view.supersededAt ?? view.endedAt;
  const keys = keyFields.flatMap((name) => {
    const result = fields.get(name)?.result;
    return result?.status === 'value'
      ? [
          html`<div><dt>${titleOf(name, language)}</dt><dd>${breakable(formatField(name, result.value, language))}</dd></div>`,
        ]
      : [];
  });
  const about: readonly (readonly [string, string])[] = [
    ...(view.serial === null ? [] : [[say.serial, view.serial] as const]),
    ['GTIN', view.product.gtin],
    [say.issued, formatDate(view.issuedAt, language)],
    [say.readAs, say.readers[view.reader]],
  ];
  return html`<section class="head is-${tone}">
<p class="badges"><span class="badge ${tone}">${state.name}</span>${view.state !== 'CEASED' && html`<span class="badge ${signed}">${view.signature === 'valid' ? '✓' : '✗'} ${say.signed[view.signature]}</span>`}</p>
<h1>${view.product.name}</h1>
<p>${say.categories[view.product.category]} · ${view.product.manufacturer}</p>
<dl class="about">${about.map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>
${view.state !== 'ACTIVE' && html`<p class="notice ${tone}" role="status">${state.sentence} ${since !== null && say.since(formatDate(since, language))} ${view.state === 'SUPERSEDED' && html`<a href="${view.labelLink}">${say.newest}</a>`}</p>`}
${view.state !== 'CEASED' && view.signature !== 'valid' && html`<p class="notice bad">${say.signature[view.signature]}</p>`}
${keys.length > 0 && html`<dl class="key">${keys}</dl>`}
${view.predecessors.length > 0 && html`<h3>${say.predecessors}</h3><ul>${view.predecessors.map(({ link, gtin, serial }) => html`<li><a href="${link}">${gtin} / ${serial}</a></li>`)}</ul>`}
</section>`;
}

/** Leads to the sections, and says that rows open. */
function navigation({ groups, withheld: hidden }: PassportView, say: Texts): Html | '' {
  if (groups.length === 0) return '';
  return html`<nav>${groups.map(({ group }) => html`<a href="#group-${group}">${say.groups[group]}</a>`)}${
    hidden.length > 0 && html`<a href="#withheld">${say.withheldShort}</a>`
  }<a href="#verification">${say.verification}</a></nav>
<p class="hint">${say.hint}</p>`;
}
