/**
 * What is subscribed to, and what a topic tells about its messages: how to parse them, whose they are, and which device
 * sent them.
 */
import { z } from 'zod';
import { messageOf } from '../../engine/errors.ts';
import { expanded } from './mqtt/options.ts';
import { flawOf, matches } from './mqtt/topics.ts';

export const parserNames = ['zebra-reads', 'zebra-events'] as const;
export type ParserName = (typeof parserNames)[number];

/** The part of a topic at this level, counted from 1: `{level: 2}` of `plant/acme/reads` is `acme`. */
export interface TopicLevel {
  readonly level: number;
}

export interface Subscription {
  /** A filter, without the shared group. */
  readonly topic: string;
  readonly parser: ParserName;
  /** One tenant, or the level of the topic that names it. */
  readonly tenant: string | TopicLevel;
  /** Null: the last level but one, as in `…/{device}/reads`. */
  readonly device: TopicLevel | null;
}

/** As it is configured: a filter alone takes the defaults. */
export type SubscriptionSetting = string | (Pick<Subscription, 'topic'> & Partial<Subscription>);

export const defaultTenant = 'default';
const longestTenant = 128;
const longestDevice = 256;

const level = z.strictObject({ level: z.int().min(1).max(64) });
const setting = z.union([
  z.string().min(1),
  z.strictObject({
    topic: z.string().min(1),
    parser: z.enum(parserNames).optional(),
    tenant: z.union([z.string().min(1).max(longestTenant), level]).optional(),
    device: level.nullable().optional(),
  }),
]) as z.ZodType<SubscriptionSetting>;

const settingList = z.array(setting).superRefine((list, context) => {
  for (const one of list) {
    const flaw = flawOfSetting(one);
    if (flaw !== undefined) context.addIssue({ code: 'custom', message: flaw });
  }
});

/** A list, or as the text of a variable: filters separated by commas, or the list as JSON. */
export const subscriptionSettings: z.ZodType<readonly SubscriptionSetting[]> = z
  .union([z.string(), z.array(z.unknown())], { error: 'expected topic filters, or a list of subscriptions' })
  .transform((value, context) => {
    if (typeof value !== 'string') return value;
    if (!value.trimStart().startsWith('[')) return value.split(',').map((topic) => topic.trim());
    try {
      return JSON.parse(value) as unknown;
    } catch (error) {
      context.addIssue({ code: 'custom', message: `it is not JSON: ${messageOf(error)}` });
      return z.NEVER;
    }
  })
  .pipe(settingList);

function flawOfSetting(one: SubscriptionSetting): string | undefined {
  const { topic, tenant, device } = typeof one === 'string' ? { topic: one } : one;
  // A variable may stand for several levels: then the filter is checked where it is expanded.
  if (topic.includes('${')) return undefined;
  const flaw = flawOf(topic);
  if (flaw !== undefined) return `"${topic}" is no topic filter: ${flaw}`;
  const levels = topic.split('/');
  for (const [name, wanted] of Object.entries({ tenant, device }))
    if (
      typeof wanted === 'object' &&
      wanted !== null &&
      wanted.level > levels.length &&
      levels.at(-1) !== '#'
    )
      return `${name} of "${topic}" is level ${wanted.level}, but the topic has ${levels.length}`;
  return undefined;
}

/** Fills in the defaults, and `${NAME}` from the environment. */
export function subscriptionsOf(
  settings: readonly SubscriptionSetting[],
  env?: Readonly<Record<string, string | undefined>>,
): Subscription[] {
  return settings.map((one, i) => {
    const given = typeof one === 'string' ? { topic: one } : one;
    const subscription: Subscription = {
      parser: given.topic.endsWith('/events') ? 'zebra-events' : 'zebra-reads',
      tenant: defaultTenant,
      device: null,
      ...given,
    };
    return expanded(subscription, env, `subscribeTopics[${i}]`) as Subscription;
  });
}

/** Where a message comes from. */
export interface Origin {
  readonly parser: ParserName;
  readonly tenantId: string;
  readonly deviceId: string;
  /** Set: the topic does not name a device or a tenant, and the message cannot be taken. */
  readonly flaw?: string;
}

/** By the first subscription that matches; undefined: none does. */
export function originOf(subscriptions: readonly Subscription[], topic: string): Origin | undefined {
  const found = subscriptions.find((subscription) => matches(subscription.topic, topic));
  if (!found) return undefined;
  const levels = topic.split('/');
  const at = ({ level: place }: TopicLevel): string => levels[place - 1]?.trim() ?? '';
  const tenant = typeof found.tenant === 'string' ? found.tenant : at(found.tenant);
  const device = found.device ? at(found.device) : (levels.at(-2)?.trim() ?? '');
  const flaw =
    flawOfName(tenant, 'tenant', longestTenant, topic) ?? flawOfName(device, 'device', longestDevice, topic);
  return {
    parser: found.parser,
    // What nobody owns is kept where an administrator sees it.
    tenantId: flawOfName(tenant, 'tenant', longestTenant, topic) === undefined ? tenant : defaultTenant,
    deviceId: device,
    ...(flaw !== undefined && { flaw }),
  };
}

function flawOfName(name: string, what: string, longest: number, topic: string): string | undefined {
  if (name === '') return `the topic "${topic}" names no ${what}`;
  if (name.includes('\0') || Buffer.byteLength(name) > longest)
    return `the topic names a ${what} that cannot be one`;
  return undefined;
}
