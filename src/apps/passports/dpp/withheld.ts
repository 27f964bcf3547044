import { attributeNamed } from '../compile/attributes.ts';
import type { AccessPoint } from '../compile/types.ts';
import type { Disclosed } from '../page/disclosure.ts';
import type { PathStep } from './path.ts';

/** The access point of an element that this reader may not see; undefined if there is none at this path. */
export function withheldPoint(
  { version, model, fieldPoints, points, ceasedAt }: Disclosed,
  [group, name]: readonly PathStep[],
): AccessPoint | undefined {
  if (ceasedAt !== null) return undefined;
  const point = typeof name === 'string' ? fieldPoints.get(name) : undefined;
  const exists = [version, model].some((each) => Object.hasOwn(each?.proof.fields ?? {}, String(name)));
  if (!exists || point === undefined || points.includes(point)) return undefined;
  return (attributeNamed(String(name))?.group ?? 'other') === group ? point : undefined;
}
