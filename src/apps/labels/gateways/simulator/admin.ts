import { z } from 'zod';
import { json, Refused, type Reply } from './exchange.ts';
import { type SimulatedLabel, shownOn, statusOf } from './labels.ts';
import { labelSettings, simulatorSettings } from './settings.ts';
import type { Simulation } from './simulation.ts';

const mac = /^[0-9A-F]{12}$/;

/** The simulator's own API, for tests and people. */
export function admin(simulation: Simulation, method: string, path: readonly string[], body: Buffer): Reply {
  const [first, second, third] = path;
  const asked = `${method} ${first === undefined ? '' : second === undefined ? first : third === undefined ? `${first}/*` : `${first}/*/${third}`}`;
  switch (asked) {
    case 'GET ':
      return json(simulation.counts());
    case 'GET settings':
      return json(simulation.settings);
    case 'PATCH settings':
      // Merge before validation: fields that are not named keep their value, not their default.
      simulation.change(
        checkedBy(simulatorSettings, { ...simulation.settings, ...read(z.looseObject({}), body) }),
      );
      return json(simulation.settings);
    case 'DELETE tokens':
      simulation.tokens.revoke();
      return { status: 204, body: '' };
    case 'GET labels':
      return json({ labels: simulation.labels.all().map((label) => summary(label, Date.now())) });
    case 'DELETE labels':
      simulation.labels.clear();
      return { status: 204, body: '' };
    case 'PUT labels/*':
      return json(details(simulation.labels.register(checked(second)), Date.now()));
    case 'PATCH labels/*': {
      const label = simulation.labels.register(checked(second));
      label.settings = { ...label.settings, ...read(labelSettings, body) };
      return json(details(label, Date.now()));
    }
    case 'GET labels/*':
      return json(details(known(simulation, second), Date.now()));
    case 'GET labels/*/image': {
      const file = known(simulation, second).files.get(1);
      if (!file) throw notFound(`label ${second} has no image`);
      return { status: 200, type: file.type, body: file.content };
    }
    default:
      throw notFound(`${method} /simulator/${path.join('/')}`);
  }
}

function summary(label: SimulatedLabel, now: number): object {
  return {
    mac: label.mac,
    status: statusOf(label, now),
    accepted: label.images.length,
    last: label.images.at(-1) ?? null,
    shown: Object.fromEntries([...shownOn(label, now)].map(([page, { hash }]) => [page, hash])),
  };
}

const details = (label: SimulatedLabel, now: number): object => ({
  ...summary(label, now),
  settings: label.settings,
  images: label.images,
});

const notFound = (what: string): Refused => new Refused(json({ message: `not found: ${what}` }, 404));

function checked(name: string | undefined): string {
  if (name === undefined || !mac.test(name))
    throw notFound(`"${name}" is not a MAC of twelve hex digits, upper case`);
  return name;
}

function known(simulation: Simulation, name: string | undefined): SimulatedLabel {
  const label = simulation.labels.get(checked(name));
  if (!label) throw notFound(`label ${name}`);
  return label;
}

function read<T>(schema: z.ZodType<T>, body: Buffer): T {
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    throw new Refused(json({ message: 'the body is not JSON' }, 400));
  }
  return checkedBy(schema, value);
}

function checkedBy<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (!result.success) throw new Refused(json({ message: z.prettifyError(result.error) }, 400));
  return result.data;
}
