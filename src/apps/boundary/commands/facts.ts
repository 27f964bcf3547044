import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError } from 'commander';
import { messageOf } from '../../../engine/errors.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, repeatable, withJson } from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { count } from '../../../host/cli/output/text.ts';
import { payloadText } from '../../../host/cli/payload.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { FactInput } from '../domain/fact.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { NodeParts } from '../node.ts';
import type { Line } from './fact-lines.ts';
import { factsGroup, nodeFrom, otherZone } from './frame.ts';

interface AppendOptions extends JsonOption {
  readonly from?: string;
  readonly to?: string;
  readonly messageId?: string;
  readonly subject?: string;
  readonly predicate?: string;
  readonly object?: string;
  readonly producedAt?: number;
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly label?: Readonly<Record<string, string>>;
  readonly attach?: { readonly bucket: string; readonly key: string };
  readonly lines?: string;
}

export function addFacts(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  withJson(factsGroup(program).command('append'))
    .description(
      'append a fact in this zone; answered when it is durable here, whether the other zone answers or not',
    )
    .option('--message-id <id>', 'unique for this zone, forever; derive it from what the fact is about')
    .option('--to <zone>', 'to this zone (default: the other zone, if there is one)')
    .option('--from <zone>', 'from this zone (default: the zone of this node)')
    .option('--subject <kind:id>', 'what it is about, such as work_order:WO-1')
    .option('--predicate <name>', 'in lower_snake_case, such as has_state')
    .option('--object <json>', 'any JSON value, @file with JSON, or - for standard input', payloadText)
    .option('--attach <bucket/key>', 'names an object that is stored (tallyman objects put)', objectName)
    .option('--produced-at <time>', 'such as 2026-03-06T08:00:00Z (default: now)', timeMs)
    .option('--correlation-id <id>', 'told along')
    .option('--causation-id <id>', 'told along')
    .option('--label <name=value>', 'told along; may be repeated', label)
    .option('--lines <file>', 'many facts: a JSON object in each line, - for standard input')
    .addHelpText(
      'after',
      `${examples([
        `facts append --message-id wo-1/done --to enterprise --subject work_order:WO-1 --predicate has_state --object '{"state": "done"}'`,
        'facts append --lines facts.jsonl',
      ])}

A line of --lines has message_id, subject, predicate and object, and may have
to_zone, from_zone, produced_at (ISO 8601), correlation_id, causation_id, labels.`,
    )
    .action((options: AppendOptions) =>
      withNode((node) =>
        options.lines === undefined ? appendOne(node, options) : appendLines(node, options),
      ),
    );
}

async function appendOne(node: NodeParts, options: AppendOptions): Promise<void> {
  const { messageId, subject, predicate } = options;
  if (messageId === undefined || subject === undefined || predicate === undefined)
    throw usage('a fact needs --message-id, --subject and --predicate; or give many with --lines');
  const reference = options.attach && (await stored(node, options.attach));
  const objectJson = options.object ?? (reference && JSON.stringify(referenceJson(reference)));
  if (objectJson === undefined) throw usage('a fact needs --object, or --attach');
  const { localCaller } = await import('../node.ts');
  const { offset, existing } = await node.intake.append(localCaller(node.settings, 'tallyman facts append'), {
    messageId,
    fromZone: options.from ?? node.settings.zone,
    toZone: options.to ?? otherZone(node.settings, '--to'),
    producedAt: options.producedAt ?? Date.now(),
    correlationId: options.correlationId,
    causationId: options.causationId,
    labels: options.label,
    subject,
    predicate,
    objectJson,
    ...(reference && { objectRef: reference }),
  });
  show(options.json, { offset, existing }, () =>
    existing ? `offset ${offset}: it was appended before` : `offset ${offset}`,
  );
}

async function appendLines(node: NodeParts, options: AppendOptions): Promise<void> {
  const [{ linesIn }, { localCaller }] = await Promise.all([import('./fact-lines.ts'), import('../node.ts')]);
  const { bytes, name } = readLines(options.lines ?? '-');
  const lines = linesIn(bytes, name);
  const inputs = lines.map((line) => inputOf(line, node, options));
  const caller = localCaller(node.settings, 'tallyman facts append');
  const results: object[] = [];
  let refused = 0;
  for (let at = 0; at < inputs.length; at += 1000) {
    const outcomes = await node.intake.appendAll(caller, inputs.slice(at, at + 1000));
    outcomes.forEach((outcome, i) => {
      const message_id = inputs[at + i]?.messageId ?? '';
      if ('appended' in outcome) {
        results.push({ message_id, offset: outcome.appended.offset, existing: outcome.appended.existing });
        return;
      }
      refused += 1;
      results.push({ message_id, refused: outcome.refused.message });
      complain(`error: line ${lines[at + i]?.number}: ${outcome.refused.message}`);
    });
  }
  show(options.json, { items: results }, () => {
    const appended = `${count(inputs.length - refused, 'fact')} appended`;
    return refused === 0 ? appended : `${appended}, ${refused} refused`;
  });
  if (refused > 0) process.exitCode = 1;
}

function readLines(file: string): { readonly bytes: Buffer; readonly name: string } {
  const name = file === '-' ? 'standard input' : file;
  try {
    return { bytes: readFileSync(file === '-' ? 0 : file), name };
  } catch (error) {
    throw usage(`cannot read ${name}: ${messageOf(error)}`);
  }
}

const names = new Set([
  'message_id',
  'from_zone',
  'to_zone',
  'subject',
  'predicate',
  'object',
  'produced_at',
  'correlation_id',
  'causation_id',
  'labels',
]);

function inputOf({ number, value }: Line, { settings }: NodeParts, options: AppendOptions): FactInput {
  const unknown = Object.keys(value).find((name) => !names.has(name));
  if (unknown !== undefined)
    throw usage(`line ${number}: has the unknown member "${unknown}"; nothing was appended`);
  const text = (name: string): string | undefined => {
    const found = value[name];
    if (found === undefined || found === null) return undefined;
    if (typeof found !== 'string')
      throw usage(`line ${number}: ${name} must be a text; nothing was appended`);
    return found;
  };
  const producedAt = text('produced_at');
  return {
    messageId: text('message_id') ?? '',
    fromZone: text('from_zone') ?? options.from ?? settings.zone,
    toZone: text('to_zone') ?? options.to ?? otherZone(settings, '--to'),
    producedAt: producedAt === undefined ? Date.now() : Date.parse(producedAt),
    correlationId: text('correlation_id'),
    causationId: text('causation_id'),
    labels: labelsIn(value.labels, number),
    subject: text('subject') ?? '',
    predicate: text('predicate') ?? '',
    objectJson: value.object === undefined ? '' : JSON.stringify(value.object),
  };
}

function labelsIn(value: unknown, number: number): Readonly<Record<string, string>> | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'object' && Object.values(value).every((each) => typeof each === 'string'))
    return value as Readonly<Record<string, string>>;
  throw usage(`line ${number}: labels must be an object of texts; nothing was appended`);
}

async function stored(
  { objects, settings }: NodeParts,
  name: { readonly bucket: string; readonly key: string },
): Promise<ObjectReference> {
  const { digest, size, mediaType } = await objects.info({ tenantId: settings.tenantId, ...name });
  return { ...name, digest, size, ...(mediaType !== undefined && { mediaType }) };
}

const referenceJson = ({ bucket, key, digest, size, mediaType }: ObjectReference) => ({
  bucket,
  key,
  digest,
  size,
  media_type: mediaType,
});

function objectName(text: string): { bucket: string; key: string } {
  const slash = text.indexOf('/');
  if (slash < 1 || slash === text.length - 1)
    throw new InvalidArgumentError('Expected <bucket>/<key>, such as batch-files/order-1.pdf.');
  return { bucket: text.slice(0, slash), key: text.slice(slash + 1) };
}

function timeMs(text: string): number {
  const at = Date.parse(text);
  if (Number.isNaN(at)) throw new InvalidArgumentError('Expected a time such as 2026-03-06T08:00:00Z.');
  return at;
}

const label = repeatable(
  (text: string, previous: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> => {
    const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
    if (name === undefined || value === undefined) throw new InvalidArgumentError('Expected <name>=<value>.');
    return { ...previous, [name]: value };
  },
);
