import { Html, html } from './html.ts';
import { style } from './style.ts';
import { type Language, texts } from './texts.ts';

/** A page that only says something, where there is no passport to show. */
export function renderNotice(what: 'notFound', language: Language): string {
  const say = texts[language];
  const { name, sentence } = say.notices[what];
  return html`<!doctype html>
<html lang="${language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${say.title}: ${name}</title>
<style>${new Html(style)}</style>
</head>
<body>
<div class="top"><span>${say.title}</span></div>
<main><section><h1>${name}</h1><p>${sentence}</p></section></main>
</body>
</html>
`.text;
}
