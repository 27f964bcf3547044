/** Rules of the configuration: which events become facts, and which facts become events (BND-16). */
import { z } from 'zod';
import { messageOf } from '../../engine/errors.ts';
import { isEventType } from '../../events/emit.ts';
import { orJson, slug } from './config-values.ts';
import { namesBoundary, unknownPlaces } from './domain/event-rules.ts';
import { checkLabels, isPredicate } from './domain/fact.ts';

const predicate = z.string().refine((text) => isPredicate(text), {
  error: 'predicate of a rule must be lower_snake_case, such as moved_to',
});

export interface EventRuleConfig {
  readonly event: string;
  readonly to: string;
  readonly predicate: string;
  readonly subject?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

function requireLabels(labels: Readonly<Record<string, string>>, context: z.RefinementCtx): void {
  try {
    checkLabels(labels);
  } catch (error) {
    context.addIssue({ code: 'custom', message: messageOf(error) });
  }
}

export const eventRules: z.ZodType<readonly EventRuleConfig[]> = orJson(
  z.array(
    z.strictObject({
      event: z.string().refine((text) => text === '*' || isEventType(text.replace(/\.\*$/, '')), {
        error:
          'event of a rule must be a type of event, such as rfid.movement, or a beginning of types, such as rfid.*',
      }),
      to: slug,
      predicate,
      subject: z
        .string()
        .refine((text) => unknownPlaces(text).length === 0, {
          error:
            'subject of a rule may name {aggregate_type}, {aggregate_id} and {payload.<member>} in braces, nothing else',
        })
        .refine((text) => /^(?:[a-z][a-z0-9_]*|\{[^{}]+\}):./.test(text), {
          error: 'subject of a rule must be kind:id, such as tag:{payload.epc_hex}',
        })
        .optional(),
      labels: z.record(z.string(), z.string()).superRefine(requireLabels).optional(),
    }),
    { error: 'expected a list of rules, each with event, to and predicate' },
  ),
);

export interface ReceivedRuleConfig {
  readonly predicate?: string | undefined;
  readonly from?: string | undefined;
}

export const receivedRules: z.ZodType<readonly ReceivedRuleConfig[]> = orJson(
  z.array(z.strictObject({ predicate: predicate.optional(), from: slug.optional() }), {
    error: 'expected a list of rules, each with predicate, from, both or neither',
  }),
);

interface RulesAndZones {
  readonly 'boundary.eventsAsFacts': readonly EventRuleConfig[];
  readonly 'boundary.factsAsEvents': readonly ReceivedRuleConfig[];
  readonly 'boundary.peers': Readonly<Record<string, unknown>>;
  readonly 'boundary.zones': readonly string[];
  readonly 'boundary.sendsTo': readonly string[];
}

/** Rules that do not fit the zones, or could send facts in circles. */
export function ruleProblems(config: RulesAndZones, zone: string): string[] {
  const others = new Set([...Object.keys(config['boundary.peers']), ...config['boundary.zones']]);
  others.delete(zone);
  const sendsTo = config['boundary.sendsTo'];
  return [
    ...config['boundary.eventsAsFacts'].flatMap(({ event, to }, i) => {
      const key = `boundary.eventsAsFacts[${i}]`;
      return [
        ...(namesBoundary(event)
          ? [
              `${key}.event is "${event}", which names events of the boundary itself: two zones would send facts about facts to and fro forever. Name the types of other parts, such as rfid.*`,
            ]
          : []),
        ...(others.has(to) && (sendsTo.length === 0 || sendsTo.includes(to))
          ? []
          : [
              `${key}.to is "${to}", which is ${others.has(to) ? 'not in boundary.sendsTo' : 'neither in boundary.peers nor in boundary.zones'}`,
            ]),
      ];
    }),
    ...config['boundary.factsAsEvents'].flatMap(({ from }, i) =>
      from === undefined || others.has(from)
        ? []
        : [
            `boundary.factsAsEvents[${i}].from is "${from}", which is neither in boundary.peers nor in boundary.zones`,
          ],
    ),
  ];
}
