/** Labels that label printers make, in mm, with the widths of the codes on them, without quiet zone. */
export const labelSizes = {
  '50x30': { width: 50, height: 30, labelCode: 14, documentCode: 20 },
  '70x40': { width: 70, height: 40, labelCode: 22, documentCode: 25 },
  '100x50': { width: 100, height: 50, labelCode: 28, documentCode: 32 },
  '100x150': { width: 100, height: 150, labelCode: 45, documentCode: 55 },
} as const;
export type LabelSize = keyof typeof labelSizes;
