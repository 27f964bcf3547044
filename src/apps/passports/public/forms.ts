import type { JsonObject } from '../compile/types.ts';
import { asJwt, type CredentialSigner, credentialOf, withDataIntegrity } from '../export/credential.ts';
import { envelopeOf } from '../export/envelope.ts';
import { type Disclosed, labelLinkOf } from '../page/disclosure.ts';
import { renderPage } from '../page/page.ts';
import type { Language } from '../page/texts.ts';
import { viewOf } from '../page/view.ts';
import { renderLabel } from '../print/label.ts';
import { renderPdf } from '../print/pdf.ts';
import type { LabelSize } from '../print/sizes.ts';
import type { Format } from './negotiate.ts';

/** The language of what people read, and for `pdf` a label of this size instead of the pages. */
export interface FormOptions {
  readonly language: Language;
  readonly label: LabelSize | undefined;
}

/** One form of a passport, but for the bundle. Throws PASSPORT_NOT_ACTIVE for credentials of a version that has ended. */
export async function makeForm(
  disclosed: Disclosed,
  format: Exclude<Format, 'bundle'>,
  { language, label }: FormOptions,
  signer: () => CredentialSigner,
): Promise<string | Uint8Array> {
  switch (format) {
    case 'html':
      return renderPage(viewOf(disclosed), language);
    case 'json':
      return `${JSON.stringify(disclosed.ceasedAt === null ? envelopeOf(disclosed) : tombstone(disclosed), null, 1)}\n`;
    case 'jsonld':
      return JSON.stringify(withDataIntegrity(credentialOf(disclosed), signer()));
    case 'vc+jwt':
      return asJwt(credentialOf(disclosed), signer());
    case 'pdf':
      return label ? renderLabel(viewOf(disclosed), language, label) : renderPdf(viewOf(disclosed), language);
  }
}

/** All that is left of a passport whose battery was recycled. */
const tombstone = (disclosed: Disclosed): JsonObject => ({
  format: 'tallyman-tombstone-1',
  state: 'CEASED',
  ceased_at: disclosed.ceasedAt,
  link: labelLinkOf(disclosed),
  gtin: disclosed.product.gtin,
  serial: disclosed.version.receipt.serial,
});
