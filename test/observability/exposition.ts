/**
 * A strict reader of the Prometheus text format 0.0.4: what it does not know is an error, and so is what Prometheus
 * would take and misread (a family in two pieces, a sample twice, a histogram whose buckets fall).
 */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary' | 'untyped';
  readonly samples: Sample[];
}

const metricName = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const labelName = /^[a-zA-Z_][a-zA-Z0-9_]*/;
const types = new Set(['counter', 'gauge', 'histogram', 'summary', 'untyped']);

export function readExposition(text: string): Map<string, Family> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end');
  const families = new Map<string, Family>();
  const seen = new Set<string>();
  let help: { name: string; text: string } | undefined;
  let current: Family | undefined;
  for (const line of text.slice(0, -1).split('\n')) {
    const wrong = (what: string) => new Error(`${what}: ${line}`);
    if (line === '') continue;
    if (line.startsWith('# HELP ')) {
      const [, name = '', words = ''] = /^# HELP (\S+) (.+)$/.exec(line) ?? [];
      if (metricName.exec(name)?.[0] !== name || name === '') throw wrong('a HELP without a name or words');
      help = { name, text: words };
      current = undefined;
    } else if (line.startsWith('# TYPE ')) {
      const [, name = '', type = ''] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
      if (!types.has(type)) throw wrong('a TYPE that there is not');
      if (help?.name !== name) throw wrong('a TYPE that does not follow its HELP');
      if (families.has(name)) throw wrong('a family for the second time');
      current = { name, help: help.text, type: type as Family['type'], samples: [] };
      families.set(name, current);
    } else if (line.startsWith('#')) {
      throw wrong('a comment');
    } else {
      const sample = readSample(line);
      if (!current || !belongs(sample.name, current)) throw wrong('a sample outside its family');
      const key = JSON.stringify([sample.name, Object.entries(sample.labels).sort()]);
      if (seen.has(key)) throw wrong('a sample for the second time');
      seen.add(key);
      current.samples.push(sample);
    }
  }
  for (const family of families.values()) if (family.type === 'histogram') checkBuckets(family);
  return families;
}

/** The value of one sample; undefined if there is none. */
export function sampleOf(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const wanted = JSON.stringify(Object.entries(labels).sort());
  for (const { samples } of families.values())
    for (const sample of samples)
      if (sample.name === name && JSON.stringify(Object.entries(sample.labels).sort()) === wanted)
        return sample.value;
  return undefined;
}

function belongs(sample: string, { name, type }: Family): boolean {
  if (type === 'histogram') return [`${name}_bucket`, `${name}_sum`, `${name}_count`].includes(sample);
  if (type === 'summary') return [name, `${name}_sum`, `${name}_count`].includes(sample);
  return sample === name;
}

function readSample(line: string): Sample {
  const name = metricName.exec(line)?.[0];
  if (!name) throw new Error(`not a sample: ${line}`);
  const labels: Record<string, string> = {};
  let rest = line.slice(name.length);
  if (rest.startsWith('{')) {
    rest = rest.slice(1);
    while (!rest.startsWith('}')) {
      const label = labelName.exec(rest)?.[0] ?? '';
      const [quoted, value = ''] = /^="((?:[^"\\\n]|\\["\\n])*)"/.exec(rest.slice(label.length)) ?? [];
      if (!label || quoted === undefined || label in labels) throw new Error(`a broken label: ${line}`);
      labels[label] = value.replace(/\\(["\\n])/g, (_, c: string) => (c === 'n' ? '\n' : c));
      rest = rest.slice(label.length + quoted.length);
      if (rest.startsWith(',')) rest = rest.slice(1);
      else if (!rest.startsWith('}')) throw new Error(`labels run together: ${line}`);
    }
    rest = rest.slice(1);
  }
  const [, number] = /^ ([+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN)$/i.exec(rest) ?? [];
  if (number === undefined) throw new Error(`a broken value: ${line}`);
  return { name, labels, value: Number(number.replace(/Inf$/, 'Infinity')) };
}

function checkBuckets({ name, samples }: Family): void {
  const series = new Map<string, { last: number; le: number; inf?: number; count?: number }>();
  for (const { name: sample, labels, value } of samples) {
    const { le, ...others } = labels;
    const key = JSON.stringify(Object.entries(others).sort());
    const at = series.get(key) ?? { last: 0, le: Number.NEGATIVE_INFINITY };
    series.set(key, at);
    if (sample === `${name}_count`) at.count = value;
    if (sample !== `${name}_bucket`) continue;
    const bound = Number((le ?? 'none').replace(/Inf$/, 'Infinity'));
    if (!(bound > at.le) || value < at.last)
      throw new Error(`the buckets of ${name} ${key} are out of order`);
    Object.assign(at, { le: bound, last: value, ...(bound === Number.POSITIVE_INFINITY && { inf: value }) });
  }
  for (const [key, { inf, count }] of series)
    if (inf === undefined || inf !== count) throw new Error(`${name} ${key} does not count what it holds`);
}
