import {
  createGateway,
  type GatewaySettings,
  type LabelGateway,
} from '../../../../src/apps/labels/gateways/index.ts';
import type { LabelSimulator } from '../../../../src/apps/labels/gateways/simulator/index.ts';
import {
  type LabelImage,
  type Panel,
  readTemplate,
  renderLabel,
} from '../../../../src/apps/labels/render/index.ts';

export const mac = '0123456789AB';
export const other = '0123456789AC';
export const panel: Panel = { width: 64, height: 40, palette: 'bwr' };

const template = readTemplate(
  `<svg xmlns="http://www.w3.org/2000/svg" width="64" height="40"><rect width="20" height="40" fill="#f00"/><tally-text x="4" y="30" font-size="24">{{text}}</tally-text></svg>`,
);
export const imageOf = (text: string): Promise<LabelImage> => renderLabel(template, { text }, panel);

export const aims = (simulator: Pick<LabelSimulator, 'url'>, timeoutMs = 60_000): GatewaySettings => ({
  kind: 'aims',
  url: `${simulator.url}/common`,
  company: 'ACME & Söhne',
  store: '0001',
  username: 'shop',
  password: 'pass-word',
  timeoutMs,
});

export const openEPaperLink = (
  simulator: Pick<LabelSimulator, 'url'>,
  timeoutMs = 60_000,
): GatewaySettings => ({
  kind: 'openepaperlink',
  url: simulator.url,
  timeoutMs,
});

export const gatewayFor = (settings: GatewaySettings): LabelGateway & AsyncDisposable => {
  const gateway = createGateway(settings);
  return Object.assign(gateway, { [Symbol.asyncDispose]: () => gateway.close() });
};

/** For calls that nobody ends before their time. */
export const whole = new AbortController().signal;
