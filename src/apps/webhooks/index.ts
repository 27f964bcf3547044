export { webhooksComponent } from './component.ts';
export type { Delivery, DeliveryAttempt, DeliveryFilter } from './deliveries.ts';
export { type WebhookKindsOptions, webhookKinds } from './delivery/kinds.ts';
export { type Endpoint, type EndpointSettings, longRetryDelays, type NewEndpoint } from './endpoints.ts';
export { webhookEventTypes } from './event-types.ts';
export { webhookFollower } from './follower.ts';
export type { AddressPolicyOptions } from './network/addresses.ts';
export type { Network, Target } from './network/network.ts';
export { Webhooks, type WebhooksOptions } from './webhooks.ts';
