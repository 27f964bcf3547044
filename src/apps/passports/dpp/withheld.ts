import { attributeNamed } from '../compile/attributes.ts';
import type { AccessPoint } from '../compile/types.ts';
import type { Disclosed } from '../page/disclosure.ts';
import type { PathStep } from './path.ts';

/** The access points of elements that the reader may not see, by group and name. */
export type WithheldElements = Readonly<Record<string, AccessPoint>>;

const nameOf = (steps: readonly PathStep[]): string => JSON.stringify(steps.slice(0, 2));

export function withheldElements({
  version,
  model,
  fieldPoints,
  points,
  ceasedAt,
}: Disclosed): WithheldElements {
  if (ceasedAt !== null) return {};
  const names = [version, model].flatMap((each) => Object.keys(each?.proof.fields ?? {}));
  return Object.fromEntries(
    names.flatMap((name) => {
      const point = fieldPoints.get(name);
      if (point === undefined || points.includes(point)) return [];
      return [[nameOf([attributeNamed(name)?.group ?? 'other', name]), point] as const];
    }),
  );
}

/** The access point of an element that this reader may not see; undefined if there is none at this path. */
export const withheldPoint = (
  withheld: WithheldElements,
  steps: readonly PathStep[],
): AccessPoint | undefined => withheld[nameOf(steps)];
