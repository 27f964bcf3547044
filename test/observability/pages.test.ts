import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { apps } from '../../src/host/apps.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { engine } from '../support/engine.ts';
import { readExposition } from './exposition.ts';

// biome-ignore lint/suspicious/noTemplateCurlyInString: that is how Grafana writes it
const chosen = '${datasource}';
const root = join(import.meta.dirname, '../..');

interface Dashboard {
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
  readonly panels: readonly {
    readonly id: number;
    readonly type: string;
    readonly title: string;
    readonly datasource?: { readonly uid: string };
    readonly targets?: readonly { readonly expr: string; readonly datasource: { readonly uid: string } }[];
  }[];
}

async function exposed() {
  const { tallyman } = await engine();
  const metrics = new Metrics(tallyman);
  for (const app of apps) await app.metrics?.(metrics.registry);
  return { metrics, families: readExposition(await metrics.text()) };
}

test('every metric and label of the dashboard is one that is exposed', async () => {
  const { metrics, families } = await exposed();
  const series = new Set<string>();
  for (const { name, type } of families.values()) {
    series.add(name);
    if (type === 'histogram') for (const part of ['bucket', 'sum', 'count']) series.add(`${name}_${part}`);
  }
  const dashboard: Dashboard = JSON.parse(await readFile(join(root, 'deploy/grafana/tallyman.json'), 'utf8'));
  const used = new Set<string>();
  const queries = [
    ...dashboard.panels.flatMap((panel) => panel.targets?.map(({ expr }) => expr) ?? []),
    ...dashboard.templating.list.flatMap(({ definition }) => definition ?? []),
  ];
  for (const query of queries)
    for (const [name] of query.matchAll(/\b(?:tallyman|process|nodejs)_[a-z0-9_]+/g)) used.add(name);
  expect([...used].filter((name) => !series.has(name))).toEqual([]);
  const unseen = [...families.keys()].filter(
    (name) => name.startsWith('tallyman_') && ![...used].some((query) => query.startsWith(name)),
  );
  expect(unseen).toEqual([]);

  const labels = new Set(['le', 'instance']);
  for (const metric of metrics.registry.getMetricsAsArray())
    for (const label of (metric as unknown as { labelNames: string[] }).labelNames) labels.add(label);
  const named = queries.flatMap((query) => [
    ...[...query.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => (list ?? '').split(', ')),
    ...[...query.matchAll(/([a-z]+)=~?"/g)].map(([, label]) => label ?? ''),
  ]);
  expect([...new Set(named)].filter((label) => !labels.has(label))).toEqual([]);
});

test('the dashboard imports anywhere: every query goes to the chosen data source, ids are unique', async () => {
  const text = await readFile(join(root, 'deploy/grafana/tallyman.json'), 'utf8');
  const dashboard: Dashboard = JSON.parse(text);
  expect(text).not.toContain('__inputs');
  for (const panel of dashboard.panels.filter(({ type }) => type !== 'row')) {
    expect(panel.datasource?.uid, panel.title).toBe(chosen);
    expect(panel.targets?.length, panel.title).toBeGreaterThan(0);
    for (const target of panel.targets ?? []) expect(target.datasource.uid).toBe(chosen);
  }
  expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  const variables = new Set(['__rate_interval', ...dashboard.templating.list.map(({ name }) => name)]);
  for (const [, name = ''] of text.matchAll(/\$\{?(\w+)/g))
    if (name !== '__all') expect(variables).toContain(name);
});

test('docs/observability.md lists every metric as it is', async () => {
  const { metrics } = await exposed();
  const page = await readFile(join(root, 'docs/observability.md'), 'utf8');
  const listed = page
    .split('\n')
    .filter((line) => line.startsWith('| `tallyman_'))
    .sort();
  const types = new Map(
    (await metrics.registry.getMetricsAsJSON()).map(({ name, type }) => [name, String(type)]),
  );
  const actual = metrics.registry
    .getMetricsAsArray()
    .filter(({ name }) => name.startsWith('tallyman_'))
    .map((metric) => {
      const { name, help, labelNames } = metric as unknown as {
        name: string;
        help: string;
        labelNames: string[];
      };
      return `| \`${name}\` | ${types.get(name)} | ${labelNames.join(', ') || '–'} | ${help} |`;
    })
    .sort();
  expect(listed).toEqual(actual);
});

test('every metric of the alert rules is one that is exposed', async () => {
  const { families } = await exposed();
  const rules = await readFile(join(root, 'deploy/prometheus/alerts.yml'), 'utf8');
  const named = [...rules.matchAll(/tallyman_\w+/g)].map(([name]) => name);
  expect(named.length).toBeGreaterThan(15);
  const known = new Set([...families.values()].flatMap(({ name }) => [name, `${name}_bucket`]));
  expect(named.filter((name) => !known.has(name))).toEqual([]);
  const page = await readFile(join(root, 'docs/observability.md'), 'utf8');
  const alerts = new Set([...rules.matchAll(/alert: (\w+)/g)].map(([, name]) => name));
  for (const [, name] of page.matchAll(/`(Tallyman[A-Z]\w+)`/g)) expect(alerts).toContain(name);
});
