import { Blob, Direction, Face, Font, Buffer as Letters, shape } from 'harfbuzzjs';

/** One glyph of a shaped text, in font units. */
export interface ShapedGlyph {
  readonly index: number;
  readonly advance: number;
  readonly dx: number;
  readonly dy: number;
}

/**
 * Chooses the forms of letters that join, and places marks: HarfBuzz, as WebAssembly, so that every machine gets the same.
 * Only texts in such a script load this module.
 */
export class Shaper {
  readonly #font: Font;
  readonly #script: string;

  constructor(file: Uint8Array, script: string) {
    this.#font = new Font(new Face(new Blob(file)));
    this.#script = script;
  }

  /** A text of one direction, from left to right as it is seen. */
  shape(text: string, rightToLeft: boolean, language: string): readonly ShapedGlyph[] {
    const letters = new Letters();
    letters.addText(text);
    letters.setDirection(rightToLeft ? Direction.RTL : Direction.LTR);
    letters.setScript(this.#script);
    letters.setLanguage(language);
    shape(this.#font, letters);
    const positions = letters.getGlyphPositions();
    return letters.getGlyphInfos().map(({ codepoint: index }, at) => {
      const { xAdvance = 0, xOffset = 0, yOffset = 0 } = positions[at] ?? {};
      return { index, advance: xAdvance, dx: xOffset, dy: yOffset };
    });
  }
}
