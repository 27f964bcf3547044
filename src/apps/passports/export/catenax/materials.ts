import type { Json, JsonObject } from '../../compile/index.ts';
import type { AspectFields } from './fields.ts';
import { type Draft, gap } from './supplement.ts';

/** What the battery is made of. Shares are of the mass of the whole battery, in per cent. */
export function materials(fields: AspectFields): Draft {
  const rows = fields.materials();
  const all = fields.get('mass');
  const impact = fields.documents('substanceImpact');
  const documentation = fields.documents('footprintStudy');
  const share = (mass: Json | undefined): Draft =>
    typeof mass === 'number' && typeof all === 'number' && all > 0
      ? Math.round((mass / all) * 1e8) / 1e6
      : gap;
  const metal = (name: string, title: string): Draft => ({
    recycled: fields.recycled(title),
    critical: isCritical(fields, name),
    location: locationOf(rows, name),
    documentation,
  });
  const trace = (name: string): { readonly [key: string]: Draft } => ({
    impactOfSubstances: impact,
    concentration: gap,
    materialUnit: gap,
    location: gap,
    critical: isCritical(fields, name),
    documentation,
  });
  const lead: Draft = { ...trace('lead'), recycled: fields.recycled('Lead') };
  return {
    active: {
      nickel: metal('nickel', 'Nickel'),
      lithium: metal('lithium', 'Lithium'),
      cobalt: metal('cobalt', 'Cobalt'),
      lead,
    },
    hazardous: {
      cadmium: trace('cadmium'),
      mercury: trace('mercury'),
      lead,
      other: rows
        .filter(({ hazardous }) => hazardous === true)
        .map((row) => ({
          impactOfSubstances: impact,
          materialIdentification: [identification(row)],
          concentration: share(row.mass),
          materialUnit: 'unit:percent',
          location: String(row.component),
          critical: Array.isArray(row.critical) && row.critical.length > 0,
          documentation,
        })),
    },
    composition: rows.map((row) => ({
      id: [identification(row)],
      concentration: share(row.mass),
      unit: 'unit:percent',
      location: String(row.component),
      critical: Array.isArray(row.critical) && row.critical.length > 0,
      documentation,
      recycled: gap,
      renewable: gap,
    })),
  };
}

const isCritical = (fields: AspectFields, name: string): boolean => {
  const critical = fields.get('criticalRawMaterials');
  return Array.isArray(critical) && critical.includes(name);
};

/** The components whose materials have it. */
function locationOf(rows: readonly JsonObject[], name: string): Draft {
  const found = rows.filter(({ critical }) => Array.isArray(critical) && critical.includes(name));
  return found.length === 0 ? gap : [...new Set(found.map(({ component }) => String(component)))].join(', ');
}

const identification = ({ cas, name }: JsonObject): Draft =>
  typeof cas === 'string' && cas !== ''
    ? { type: 'CAS', id: cas, name: String(name) }
    : { type: 'IUPAC', id: String(name), name: String(name) };
