import { z } from 'zod';

const address = z
  .url({ protocol: /^https?$/ })
  .max(500)
  .describe('Where the gateway listens, such as https://aims.example.com or http://192.168.1.20');
const timeoutMs = z
  .number()
  .int()
  .min(100)
  .max(120_000)
  .default(15_000)
  .describe('A call that has not been answered in this time is given up, in ms');

export const aimsSettings = z
  .strictObject({
    kind: z.literal('aims'),
    url: address,
    company: z.string().min(1).max(100).describe('Company code'),
    store: z.string().min(1).max(100).describe('Store code'),
    username: z.string().min(1).max(200),
    /** Kept sealed. */
    password: z.string().min(1).max(500),
    timeoutMs,
  })
  .describe('SoluM AIMS');

export const openEPaperLinkSettings = z
  .strictObject({
    kind: z.literal('openepaperlink'),
    url: address,
    timeoutMs,
  })
  .describe('An access point with OpenEPaperLink');

/** How a store's gateway is reached. The password is a secret. */
export const gatewaySettings = z.discriminatedUnion('kind', [aimsSettings, openEPaperLinkSettings]);

export type AimsSettings = z.infer<typeof aimsSettings>;
export type OpenEPaperLinkSettings = z.infer<typeof openEPaperLinkSettings>;
export type GatewaySettings = z.infer<typeof gatewaySettings>;
