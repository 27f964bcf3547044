import { deflateSync } from 'node:zlib';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { readTemplate, renderLabel, TemplateError } from '../../../../src/apps/labels/render/index.ts';
import { fitting } from '../../../../src/apps/labels/render/lines.ts';
import { checkCosts } from '../../../../src/apps/labels/render/svg-rules.ts';
import { limits } from '../../../../src/apps/labels/render/template.ts';
import { readXml, type XmlElement } from '../../../../src/apps/labels/render/xml.ts';
import { panel, svg } from './support.ts';

const read = (content: string) => readTemplate(svg(content));

/** A PNG that says it is this large; of what one colour takes. */
function pngOf(width: number, height: number): string {
  const chunk = (type: string, content: Buffer): Buffer => {
    const head = Buffer.alloc(8);
    head.writeUInt32BE(content.length, 0);
    head.write(type, 4, 'latin1');
    return Buffer.concat([head, content, Buffer.alloc(4)]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 6, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(Buffer.alloc(100))),
    chunk('IEND', Buffer.alloc(0)),
  ]).toString('base64');
}

/** The beginning of a JPEG: a comment, then the frame with the size. */
const jpegOf = (width: number, height: number): string =>
  Buffer.from([
    ...[0xff, 0xd8, 0xff, 0xfe, 0x00, 0x06, 1, 2, 3, 4, 0xff, 0xc2, 0x00, 0x11, 8],
    ...[height >> 8, height & 255, width >> 8, width & 255, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0],
  ]).toString('base64');

const image = (type: string, base64: string): string =>
  `<image width="9" height="9" href="data:image/${type};base64,${base64}"/>`;

describe('SEC-2: what a template may not hold', () => {
  const refused: [string, string, RegExp][] = [
    ['a filter', '<rect filter="blur(9)" width="9" height="9"/>', /<rect> takes no filter in a template/],
    ['a filter in a style', '<g style="fill:red; FILTER : blur(9px)"/>', /takes no filter/],
    ['a filter of a value', '<g style="{{a}}"/>', /placeholder in its style/],
    ['a comment in a style', '<g style="fi/**/lter:blur(9px)"/>', /comment in its style/],
    ['an attribute that is not on the list', '<rect mix-blend-mode="multiply"/>', /takes no mix-blend-mode/],
    [
      'a PNG of three billion pixels',
      image('png', pngOf(60_000, 50_000)),
      /come to more than 4000000 pixels/,
    ],
    [
      'a JPEG of four billion pixels',
      image('jpeg', jpegOf(65_000, 65_000)),
      /come to more than 4000000 pixels/,
    ],
    ['an image that is none', image('png', 'AAAA'), /neither a PNG nor a JPEG/],
    [
      'an image that is drawn often',
      `<g id="a">${image('png', pngOf(1000, 1000))}</g>${'<use href="#a"/>'.repeat(9)}`,
      /come to more than 4000000 pixels/,
    ],
    [
      'a hundred barcodes',
      '<tally-barcode type="qrcode" value="{{a}}" x="0" y="0" width="90" height="90"/>'.repeat(100),
      /more than 16 barcodes/,
    ],
    [
      'masks in masks',
      '<mask id="a"><rect mask="url(#b)"/></mask><mask id="b"><rect/></mask><rect mask="url(#a)"/>',
      /<mask> #a has a mask or a clip path inside/,
    ],
    [
      'a mask with much in it, often',
      `<mask id="a">${'<rect/>'.repeat(100)}</mask>${'<rect mask="url(#a)"/>'.repeat(30)}`,
      /come to more than 2000 elements/,
    ],
    [
      'a mask many times in one attribute',
      '<mask id="m"><rect/></mask><rect mask="url(#m)url(#m)"/>',
      /more than one url\(\) in its mask/,
    ],
    [
      'a mask many times in one declaration',
      '<mask id="m"><rect/></mask><rect style="fill:url(#m);mask:url(#m) url(#m)"/>',
      /more than one url\(\) in its style/,
    ],
    [
      'a mask that a value names',
      '<mask id="m"><rect/></mask><rect mask="url(#{{a}})"/>',
      /placeholder in its mask/,
    ],
    ['a clip path that a value names', '<g clip-path="{{a}}"/>', /placeholder in its clip-path/],
    ['a name that is a value', '<mask id="{{a}}"><rect/></mask>', /placeholder in its id/],
    ['short dashes', '<line stroke-dasharray="0.001" x2="9"/>', /at least 1 pixel/],
    ['dashes on a long line', '<line stroke-dasharray="1" x2="99999999"/>', /x2 must be short/],
    ['dashes of a value', '<line stroke-dasharray="{{a}}" x2="9"/>', /up to 16 numbers/],
    ['dashes for everything inside', '<g stroke-dasharray="1 2"/>', /on the shape itself/],
  ];
  for (const [what, content, message] of refused)
    test(what, () => {
      expect(() => read(content)).toThrow(TemplateError);
      expect(() => read(content)).toThrow(message);
    });

  test('layers, by the pixels that they take', () => {
    const faded = (count: number, side: number) =>
      `<svg xmlns="http://www.w3.org/2000/svg" width="${side}" height="${side}">${'<g opacity="0.5"/>'.repeat(count)}</svg>`;
    expect(() => readTemplate(faded(65, 1000))).toThrow(/More than 64 elements have an opacity/);
    expect(readTemplate(faded(65, 200)).width).toBe(200);
  });

  test('what drawing programs write is left out or stays', async () => {
    const template = read(
      '<g class="a" data-name="b" aria-label="c" style="fill:#000;-inkscape-font:x;stroke:none"><rect width="9" height="9" stroke-dasharray="2,2"/></g>',
    );
    expect(template.parts.join('')).toContain('style="fill:#000;stroke:none"');
    expect((await renderLabel(template, {}, panel)).panel).toEqual(panel);
  });
});

describe('SEC-2: what a template may not be filled with', () => {
  const render = (content: string, values: Record<string, string>) =>
    renderLabel(read(content), values, panel);

  test('a text of many values', async () => {
    const content = `<tally-text x="1" y="9" font-size="9">${'{{a}}'.repeat(3)}</tally-text>`;
    await expect(render(content, { a: 'x'.repeat(2000) })).rejects.toThrow(
      /6000 characters; 4096 are the most/,
    );
  });

  test('a QR code of two thousand characters', async () => {
    const content = '<tally-barcode type="qrcode" value="{{a}}" x="0" y="0" width="200" height="200"/>';
    await expect(render(content, { a: 'x'.repeat(2000) })).rejects.toThrow(
      /2000 characters; 1024 are the most/,
    );
  });

  test('texts that come to megabytes of outlines', async () => {
    const content = '<tally-text x="1" y="9" font-size="9">{{a}}</tally-text>'.repeat(300);
    await expect(render(content, { a: 'g'.repeat(2000) })).rejects.toThrow(/more than 8388608 characters/);
  });

  test('long texts of SVG', async () => {
    const content = '<text>{{a}}</text>'.repeat(40);
    await expect(render(content, { a: 'x'.repeat(2000) })).rejects.toThrow(/50000 are the most/);
  });
});

describe('SEC-2: how long the costs take to count', () => {
  /** The same tree, which counts how often something in it is looked at. */
  function watched(root: XmlElement): { readonly root: XmlElement; readonly looks: () => number } {
    let looks = 0;
    const copy = (element: XmlElement): XmlElement => {
      const children = element.children.map((child) => (typeof child === 'string' ? child : copy(child)));
      const attributes = new Map(element.attributes);
      return {
        name: element.name,
        line: element.line,
        get children() {
          looks += children.length + 1;
          return children;
        },
        get attributes() {
          looks += 1;
          return attributes;
        },
      };
    };
    return { root: copy(root), looks: () => looks };
  }

  const inside = '<rect/>'.repeat(1900);
  const much = `<g id="m">${'<!---->x'.repeat(20_000)}</g>`;
  const counted: [string, string][] = [
    [
      'a mask with much in it, all over one attribute',
      `<mask id="m">${inside}</mask><g mask="${'url(#m)'.repeat(8_000)}"/>`,
    ],
    ['the same in a style', `<mask id="m">${inside}</mask><g style="${'mask:url(#m);'.repeat(8_000)}"/>`],
    [
      'the same where nothing of it is drawn',
      `<mask id="m">${inside}</mask><metadata><g mask="${'url(#m)'.repeat(8_000)}"/></metadata>`,
    ],
    ['a group with many pieces of text, through <use>', `${much}${'<use href="#m"/>'.repeat(1900)}`],
    [
      'groups in groups, each of which is used',
      `${Array.from({ length: 38 }, (_, nth) => `<g id="m${nth}">`).join('')}${'<rect/>'.repeat(900)}${'</g>'.repeat(38)}${'<use href="#m37"/>'.repeat(900)}`,
    ],
  ];
  for (const [what, content] of counted)
    test(what, () => {
      const { root, looks } = watched(readXml(svg(content), limits.elements));
      try {
        checkCosts(root, panel, limits);
      } catch (error) {
        expect(error).toBeInstanceOf(TemplateError);
      }
      expect(looks()).toBeLessThan(150_000);
    });

  test('an image is looked at once, however often it is drawn', () => {
    const { root, looks } = watched(
      readXml(
        svg(
          `${image('png', pngOf(1, 1)).replace('<image', '<image id="m"')}${'<use href="#m"/>'.repeat(1000)}`,
        ),
        limits.elements,
      ),
    );
    const decode = vi.spyOn(Buffer, 'from');
    onTestFinished(() => decode.mockRestore());
    checkCosts(root, panel, limits);
    expect(decode.mock.calls.length).toBeLessThanOrEqual(2);
    expect(looks()).toBeLessThan(20_000);
  });
});

test('SEC-2: comments and sections that never end', () => {
  expect(() => read('<!--'.repeat(60_000))).toThrow(/malformed comment/);
  expect(() => read('<![CDATA['.repeat(25_000))).toThrow(TemplateError);
  expect(() => read('<!-- & --><![CDATA[&]]>&x y')).toThrow(/&x is not known/);
});

test('SEC-2: where a line ends is searched for, with the same result as one letter after the other', () => {
  for (const count of [0, 1, 2, 3, 7, 8, 9, 100, 4096])
    for (const last of [0, 1, 2, 3, 4, 5, 8, 99, 100, 4095, 4096]) {
      let asked = 0;
      const holds = (nth: number): boolean => {
        asked += 1;
        return nth <= last;
      };
      const found = fitting(count, holds, { isMonotone: true });
      expect(asked).toBeLessThanOrEqual(26);
      expect([count, last, found]).toEqual([count, last, Math.min(count, last)]);
      expect(fitting(count, holds, { isMonotone: false })).toBe(found);
    }
});

test('SEC-2: a message does not repeat a long template', () => {
  const content = `<tally-text x="1" y="9" font-size="${'1'.repeat(200_000)}"/>`;
  expect(() => read(content)).toThrow(/^Line 2: <tally-text> has font-size="1{900,1000}…$/);
});
