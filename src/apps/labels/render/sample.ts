/** What previews show if no product is named. */
export const sampleValues: Readonly<Record<string, string>> = {
  name: 'Organic whole milk 3.8 % fat, glass bottle',
  sku: '10045-331',
  gtin: '4006381333931',
  price: '1.79',
  unitPrice: '1.79',
  unit: 'l',
  currency: 'EUR',
  locale: 'de-DE',
};

/** The same product on offer. */
export const samplePromotion: Readonly<Record<string, string>> = {
  ...sampleValues,
  promoPrice: '1.29',
  promoUnitPrice: '1.29',
};
