import { AimsGateway } from './aims.ts';
import type { LabelGateway } from './gateway.ts';
import type { GatewayGuard } from './http.ts';
import { OpenEPaperLinkGateway } from './openepaperlink.ts';
import type { GatewaySettings } from './settings.ts';

export type { LabelGateway, LabelPush, LabelReport, LabelState } from './gateway.ts';
export type { GatewayGuard } from './http.ts';
export { type GatewayPolicies, gatewayPolicies } from './policy.ts';
export { type GatewaySettings, gatewaySettings } from './settings.ts';

/** The gateway of a store. It connects when it is first used; `close` ends its connections. */
export function createGateway(settings: GatewaySettings, guard: GatewayGuard = {}): LabelGateway {
  return settings.kind === 'aims'
    ? new AimsGateway(settings, guard)
    : new OpenEPaperLinkGateway(settings, guard);
}
