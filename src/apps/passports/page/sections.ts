import type { JsonObject } from '../compile/index.ts';
import { qrModules, qrPath, quietZone } from '../qr/modules.ts';
import { breakable, type Html, html } from './html.ts';
import { type Language, texts } from './texts.ts';
import { formatDate, formatField, isQuantity, titleOf } from './values.ts';
import type { PassportView } from './view.ts';

/** How a state is meant: it holds, it has ended, do not rely on it. */
export const toneOf = (state: PassportView['state']): 'good' | 'warn' | 'bad' =>
  state === 'ACTIVE' ? 'good' : state === 'REVOKED' ? 'bad' : 'warn';

export const section = (id: string, title: string, content: Html): Html =>
  html`<section id="${id}"><h2>${title}</h2>${content}</section>\n`;

/** The four stages of the footprint as one bar, if the reader has them. */
export function footprintBar({ groups }: PassportView, language: Language): Html | '' {
  const stages = [
    'footprintRawMaterials',
    'footprintProduction',
    'footprintDistribution',
    'footprintEndOfLife',
  ];
  const fields = new Map(groups.flatMap((each) => each.fields).map((field) => [field.name, field]));
  const parts = stages.flatMap((name) => {
    const result = fields.get(name)?.result;
    if (result?.status !== 'value' || !isQuantity(result.value)) return [];
    const share = Number(result.value.value) / 10 ** result.value.scale;
    return [{ name, share, text: formatField(name, result.value, language) }];
  });
  if (parts.length < stages.length) return '';
  let start = 0;
  const bars = parts.map(({ share }, at) => {
    const bar = html`<rect class="part${at}" x="${start.toFixed(3)}" width="${Math.max(0, share).toFixed(3)}" height="6"/>`;
    start += share;
    return bar;
  });
  const label = parts.map(({ name, text }) => `${titleOf(name, language)} ${text}`).join(', ');
  return html`<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="${label}">${bars}</svg>
<ul class="legend">${parts.map(({ name, text }, at) => html`<li><i class="part${at}"></i>${titleOf(name, language)} <b>${text}</b></li>`)}</ul>`;
}

export function individual(view: PassportView, language: Language): Html | '' {
  const say = texts[language];
  if (view.state === 'CEASED' || view.serial === null || view.individual === null) return '';
  if (view.individual.length === 0)
    return section('individual', say.individual, html`<p>${say.individualNone}</p>`);
  return section(
    'individual',
    say.individual,
    html`<table><tbody>${view.individual.map(
      ({ at, type, data }) =>
        html`<tr><td>${formatDate(at, language)}</td><td>${titleOf(type, language)}</td><td class="number"><b>${eventText(type, data, language)}</b></td></tr>`,
    )}</tbody></table><p class="from">${say.individualSigned}</p>`,
  );
}

/** Values of known attributes by their names, in the order of their names: a database may keep another. */
const eventText = (type: string, data: JsonObject, language: Language): string =>
  Object.entries(data)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, each]) =>
      name === 'value' || name === type
        ? formatField(type, each, language)
        : `${titleOf(name, language)}: ${formatField(name, each, language)}`,
    )
    .join(', ');

export function withheld(view: PassportView, language: Language): Html | '' {
  const say = texts[language];
  const hasEvents = view.individual === null && view.state !== 'CEASED';
  if (view.withheld.length === 0 && !hasEvents) return '';
  return section(
    'withheld',
    say.withheld,
    html`<p>${say.withheldIntro}</p><div class="withheld">${view.withheld.map(
      ({
        point,
        fields,
      }) => html`<div><h3>${say.points[point].name} <small>(${say.annex} ${point})</small></h3>
<p>${fields.map((name) => titleOf(name, language)).join(' · ')}${point === 4 && hasEvents && ` · ${say.individualWithheld}`}</p>
<p class="from">${say.whoMay}: ${say.points[point].who}.</p></div>`,
    )}</div>`,
  );
}

export function verification(view: PassportView, language: Language): Html {
  const say = texts[language];
  const { hashes } = say;
  const rows = [
    [hashes.version, view.versionId],
    [hashes.receipt, view.hashes.receipt],
    [hashes.payload, view.hashes.payload],
    [hashes.proof, view.hashes.proof],
    [hashes.rules, view.rules],
    [hashes.key, view.key],
  ] as const;
  // The page of a version that has ended leads to other forms of the same version.
  const more = view.state === 'ACTIVE' ? '' : `&version=${view.versionId}`;
  const isOver = view.state !== 'ACTIVE';
  return section(
    'verification',
    say.verification,
    html`${isOver && html`<p class="notice ${toneOf(view.state)}">${say.states[view.state].sentence}</p>`}<p>${say.signature[view.signature]} ${say.notQualified}</p>
<div class="codes">
<figure>${code(view.labelLink, say.labelCode)}<figcaption><b>${say.labelCode}</b>${say.labelCodeFor}</figcaption></figure>
<figure>${code(view.documentCode, say.documentCode)}<figcaption><b>${say.documentCode}</b>${say.documentCodeFor}</figcaption></figure>
</div>
<p class="address">${say.labelCode}: ${breakable(view.labelLink)}</p>
<p>${say.verifyOffline} <code>tallyman verify passport.json</code></p>
<p class="formats"><a href="?format=json${more}">JSON</a>${!isOver && html`<a href="?format=jsonld">JSON-LD</a><a href="?format=vc%2Bjwt">vc+jwt</a>`}<a href="?format=pdf&lang=${language}${more}">PDF</a></p>
<details class="technical"><summary>${say.technical}</summary><dl class="hashes">${rows.map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl></details>`,
  );
}

function code(text: string, label: string): Html {
  const modules = qrModules(text);
  const size = modules.size + 2 * quietZone;
  return html`<svg viewBox="0 0 ${size} ${size}" role="img" aria-label="${label}" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h${size}v${size}H0z"/><path d="${qrPath(modules)}"/></svg>`;
}
