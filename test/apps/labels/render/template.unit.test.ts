import { describe, expect, it } from 'vitest';
import { readTemplate, renderLabel, TemplateError } from '../../../../src/apps/labels/render/index.ts';
import { decodePng } from '../../../../src/apps/labels/render/png.ts';
import { panel, product, svg } from './support.ts';

const render = (content: string, values: Record<string, string> = product) =>
  renderLabel(readTemplate(svg(content)), values, panel);
const hashOf = async (content: string, values?: Record<string, string>) =>
  (await render(content, values)).hash;

describe('Reading a template', () => {
  it('LBL-6 tells which values it needs: not optional ones, not those a condition asks for', () => {
    const template = readTemplate(
      svg(`<tally-text x="1" y="20" font-size="12">{{name}} {{brand?}} {{ day | day }}</tally-text>
           <g tally-if="promo"><tally-price value="{{promo}}" x="1" y="60" font-size="30"/>{{note}}</g>
           <text x="{{left}}" y="9" tally-unless="promo">{{sku|upper}}</text>`),
    );
    expect(template.placeholders).toEqual(['currency', 'day', 'left', 'locale', 'name', 'note', 'sku']);
    expect([template.width, template.height]).toEqual([296, 160]);
  });

  it.each([
    ['<text>{{name</text>', /Line 2.*\{\{ or \}\} without its other half/],
    ['<text>{{na me}}</text>', /Line 2.*not a placeholder/],
    ['<text>{{name|shiny}}</text>', /no format "shiny"; there is money, amount/],
    ['<text>{{@accnt}}</text>', /there is \{\{@accent\}\} and \{\{@on-accent\}\}/],
    ['<rect><text></rect></text>', /not well-formed: <\/rect> closes nothing: <text> of line 2/],
    ['<rect', /Line 3.*malformed|Line 3.*not closed/],
    ['<rect width=3/>', /Line 2.*not in quotes/],
    ['<rect width="3" width="4"/>', /stands twice/],
    ['<text>&nbsp;</text>', /&nbsp; is not known/],
    ['<text>&#0;</text>', /&#0; is not known/],
    ['<text>a & b</text>', /write &amp; for &/],
    ['<script>alert(1)</script>', /Line 2: <script> is not taken/],
    ['<foreignObject/>', /<foreignObject> is not taken/],
    ['<style>@import url(http://example.com/a.css)</style>', /<style> is not taken/],
    ['<filter id="f"/>', /<filter> is not taken/],
    ['<rect onclick="alert(1)"/>', /cannot run anything/],
    ['<image href="http://example.com/a.png"/>', /must be in the template, as data:image/],
    ['<image href="file:///etc/passwd"/>', /must be in the template/],
    ['<image href="data:image/svg+xml;base64,PHN2Zy8+"/>', /must be in the template/],
    ['<image xlink:href="{{picture}}"/>', /a placeholder in its xlink:href/],
    ['<use href="other.svg#a"/>', /only what is in the template/],
    ['<use href="#missing"/>', /#missing, which is not there/],
    ['<rect fill="url(http://example.com/#a)"/>', /only url\(#name\) is taken/],
    ['<rect style="fill: URL( \'//example.com\')"/>', /only url\(#name\) is taken/],
    [
      '<tally-text x="1" y="2" font-size="big">a</tally-text>',
      /Line 2.*font-size="big"; it must be a number/,
    ],
    ['<tally-text x="1" y="2" font-size="12" colour="red">a</tally-text>', /takes no colour; it takes x, y/],
    ['<tally-text y="2" font-size="12">a</tally-text>', /<tally-text> has no x/],
    ['<tally-text x="1" y="2" font-size="12"><b/></tally-text>', /<b> cannot stand inside/],
    [
      '<tally-barcode type="ean14" value="1" x="1" y="1" width="200" height="9"/>',
      /must be one of gtin, ean13/,
    ],
    [
      '<tally-barcode type="ean13" value="{{gtin}}" x="1" y="1" width="90" height="9"/>',
      /needs 113 pixels across/,
    ],
    ['<tally-qr/>', /there is tally-text, tally-price and tally-barcode/],
    ['<g tally-if="{{promo}}"/>', /must name a placeholder, without braces/],
    ['<g tally-if="a" tally-unless="b"/>', /both tally-if and tally-unless/],
  ])('LBL-6 refuses %s', (content, message) => {
    expect(() => readTemplate(svg(content))).toThrow(TemplateError);
    expect(() => readTemplate(svg(content))).toThrow(message);
  });

  it.each([
    ['', /must begin with <svg/],
    ['<!DOCTYPE svg [<!ENTITY a "b">]><svg/>', /<!DOCTYPE …>\) is not taken/],
    [
      '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><?php ?></svg>',
      /processing instructions/,
    ],
    ['<html/>', /must be an <svg>; this is <html>/],
    ['<svg width="10" height="10"/>', /must have xmlns/],
    ['<svg xmlns="http://www.w3.org/2000/svg" width="10mm" height="10"/>', /width in whole pixels/],
    ['<svg xmlns="http://www.w3.org/2000/svg" width="5000" height="10"/>', /5000 × 10 pixels; 2000 a side/],
    ['<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10" viewBox="0 0 20 20"/>', /would scale/],
  ])('LBL-6 refuses a document that is none of ours: %s', (source, message) => {
    expect(() => readTemplate(source)).toThrow(TemplateError);
    expect(() => readTemplate(source)).toThrow(message);
  });

  it('LBL-6 refuses what is larger or deeper than any label', () => {
    expect(() => readTemplate(svg('<g>'.repeat(60)))).toThrow(/40 deep/);
    expect(() => readTemplate(svg('<g/>'.repeat(3000)))).toThrow(/more than 2000 elements/);
    expect(() => readTemplate(svg(' '.repeat(300_000)))).toThrow(/bytes; 262144 are the most/);
    expect(() => readTemplate(`${svg('')} and more`)).toThrow(/text after <\/svg>/);
  });

  it('LBL-6 refuses uses that multiply', () => {
    const nested = '<g id="a"><rect/></g><g id="b"><use href="#a"/><use href="#a"/></g><use href="#b"/>';
    expect(() => readTemplate(svg(nested))).toThrow(/has <use> or a tally- element inside/);
    const many = `<g id="a">${'<rect/>'.repeat(100)}</g>${'<use href="#a"/>'.repeat(50)}`;
    expect(() => readTemplate(svg(many))).toThrow(/come to more than 2000 elements/);
  });

  it('LBL-6 leaves out what drawing programs add', async () => {
    const bare = await hashOf('<rect width="20" height="20"/>');
    const inkscape = await hashOf(
      '<!-- a comment --><title>t</title><sodipodi:namedview xmlns:sodipodi="x"><inkscape:grid/></sodipodi:namedview><rect inkscape:label="r" width="20" height="20"/>',
    );
    expect(inkscape).toBe(bare);
  });
});

describe('Filling a template', () => {
  it('LBL-6 names a placeholder that has no value', async () => {
    const error: unknown = await render('<text>{{name}}</text>\n<text>{{brand}}</text>').catch((e) => e);
    expect(error).toBeInstanceOf(TemplateError);
    expect(error).toMatchObject({
      message: 'Line 3: There is no value for {{brand}}.',
      code: 'LABEL_TEMPLATE',
      details: { line: 3, placeholder: 'brand' },
    });
    // What every object has is not a value.
    await expect(render('<text>{{constructor}}</text>')).rejects.toThrow('no value for {{constructor}}');
  });

  it('LBL-6 refuses a value that is too long', async () => {
    await expect(render('<text>{{name}}</text>', { name: 'x'.repeat(3000) })).rejects.toThrow(
      'The value for {{name}} has 3000 characters; 2048 are the most.',
    );
  });

  it('LBL-6 refuses a panel of another size', async () => {
    const template = readTemplate(svg('', { width: 200, height: 200 }));
    await expect(renderLabel(template, {}, panel)).rejects.toThrow(
      'The template is made for 200 × 200 pixels; the label has 296 × 160.',
    );
  });

  it.each([
    ['{{price|money}}', { price: '12,50' }, /"12,50" is not an amount for \{\{price\}\}/],
    ['{{price|money}}', { price: '1e5' }, /not an amount/],
    ['{{price|money}}', { price: '1', currency: 'Euro' }, /"Euro" is not a currency/],
    ['{{price|money}}', { price: '1', locale: 'xx-nonsense-!' }, /is not a language that is known/],
    ['{{until|day}}', { until: '2026-02-30' }, /"2026-02-30" is not a day/],
  ])('LBL-6 refuses %s with %j', async (content, values, message) => {
    await expect(render(`<text>${content}</text>`, { ...product, ...values })).rejects.toThrow(TemplateError);
    await expect(render(`<text>${content}</text>`, { ...product, ...values })).rejects.toThrow(message);
  });

  it.each([
    ['ean13', '4006381333932', /"4006381333932" has a wrong check digit/],
    ['gtin', '400638133393', /wrong check digit/],
    ['gtin', '12345', /is not a GTIN: that is 8, 12, 13 or 14 digits/],
    ['ean13', '96385074', /No ean13 barcode can be made of "96385074"/],
    ['code128', 'Müsli', /only letters, digits and signs of ASCII/],
    ['code128', 'x'.repeat(60), /needs 7\d\d pixels across; the template leaves it 200 × 40/],
  ])('LBL-6 refuses a %s barcode of %s', async (type, value, message) => {
    const barcode = `<tally-barcode type="${type}" value="{{code}}" x="10" y="10" width="200" height="40"/>`;
    await expect(render(barcode, { code: value })).rejects.toThrow(TemplateError);
    await expect(render(barcode, { code: value })).rejects.toThrow(message);
  });

  it('LBL-6 without a value a barcode is not drawn', async () => {
    const barcode = `<tally-barcode type="gtin" value="{{gtin?}}" x="10" y="10" width="200" height="40"/>`;
    expect(await hashOf(barcode, {})).toBe(await hashOf(''));
  });

  it('LBL-6 fonts of the machine play no part, whatever a template asks for', async () => {
    const text = (family: string) =>
      `<text x="9" y="40" font-size="30" font-family="${family}">Ag 1 Ж</text>`;
    const inter = await hashOf(text('Inter'));
    expect(inter).not.toBe(await hashOf(''));
    for (const family of [
      'DejaVu Sans',
      'Liberation Serif, serif',
      'monospace',
      'Nowhere',
      'Arial, sans-serif',
    ])
      expect(await hashOf(text(family)), family).toBe(inter);
  });

  it('LBL-6 draws what a condition allows', async () => {
    const template = '<rect tally-if="promo" width="9" height="9"/><circle tally-unless="promo" r="9"/>';
    const [rect, circle] = [await hashOf('<rect width="9" height="9"/>'), await hashOf('<circle r="9"/>')];
    expect(await hashOf(template, { promo: 'yes' })).toBe(rect);
    expect(await hashOf(template, { promo: '' })).toBe(circle);
    expect(await hashOf(template, {})).toBe(circle);
  });

  it('LBL-6 bars are whole pixels, black on white, with the blank that readers need', async () => {
    const { png } = await render(
      '<rect width="296" height="160" fill="#f00"/><tally-barcode type="ean13" value="4006381333931" x="20" y="20" width="250" height="60"/>',
    );
    const { pixels } = decodePng(png);
    const row = [...pixels.subarray(296 * 40 + 20, 296 * 40 + 270)];
    // Two pixels a module: 226 of the 250, so twelve blank ones on either side beside the quiet zone.
    const bars = row.slice(12, 12 + 226);
    const modules = Array.from({ length: 113 }, (_, at) => bars[at * 2]);
    expect(bars.every((pixel, at) => pixel === modules[Math.floor(at / 2)])).toBe(true);
    expect(modules.slice(0, 11).every((pixel) => pixel === 1)).toBe(true);
    expect(modules.slice(-7).every((pixel) => pixel === 1)).toBe(true);
    expect(modules.slice(11, 14)).toEqual([0, 1, 0]);
    expect(modules.slice(-10, -7)).toEqual([0, 1, 0]);
  });
});
