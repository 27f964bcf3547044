import { attributeNamed } from '../../../../src/apps/passports/compile/attributes.ts';
import { documents, product, rulePackage } from '../../../../src/apps/passports/compile/sample/index.ts';
import { formatNames } from '../../../../src/apps/passports/public/negotiate.ts';
import { csv, documentUrl, itemsCsv, productUrl } from '../api.ts';
import { owners, type TestCaller } from './callers.ts';
import type { Scene } from './scene.ts';

/** One request, and the status that each caller gets. */
export interface Case {
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly status: (caller: TestCaller) => number;
}
export type Table = Readonly<Record<string, readonly Case[]>>;

type Name = NonNullable<TestCaller['own']>;
const guests = ['interest', 'authority', 'stranger'] as const satisfies readonly Name[];
const operators = ['admin', 'operator'] as const satisfies readonly Name[];
const producers = [...operators, 'producer'] as const satisfies readonly Name[];

/** 401 without a good key; 403 for those who are not named; else this, and `elsewhere` in another tenant. */
const only =
  (names: readonly Name[], status: number, elsewhere: number) =>
  ({ own, isForeign }: TestCaller): number => {
    if (own === undefined) return 401;
    if (!names.includes(own)) return 403;
    return isForeign ? elsewhere : status;
  };

/** The first that names the caller's role, whatever its tenant; refused if none does. */
const each =
  (...parts: readonly (readonly [names: readonly Name[], status: number, elsewhere: number])[]) =>
  (caller: TestCaller): number => {
    const part = parts.find(([names]) => caller.own !== undefined && names.includes(caller.own));
    return part ? only(...part)(caller) : only([], 0, 0)(caller);
  };

/** Without a key, too. A key that does not count any more is refused even here. */
const everybody =
  (status: number | ((caller: TestCaller) => number)) =>
  (caller: TestCaller): number => {
    if (caller.own === undefined && caller.name !== 'nobody') return 401;
    return typeof status === 'number' ? status : status(caller);
  };

const nothing = '00000000-0000-4000-8000-000000000000';
const json = (path: string, body: unknown, status: Case['status']): Case => ({ path, body, status });
const get = (path: string, status: Case['status']): Case => ({ path, status });

/** Every route of the app, in every form that it answers in. A route that is not here makes the test fail. */
export function passportTable(scene: Scene): Table {
  return {
    ...managed(scene),
    ...versions(scene),
    ...published(scene),
    ...standard(scene),
    // Last: another tenant may register the same GTIN, and the first one still answers for it.
    'passport_products.put': [
      json(
        productUrl,
        {
          name: product.name,
          category: product.category,
          gtin: product.gtin,
          manufacturer: product.manufacturer,
          manufacturer_id: product.manufacturerId,
        },
        only(operators, 200, 200),
      ),
    ],
  };
}

function managed(scene: Scene): Table {
  const { batteries, documents: uploaded, model, newcomer, rules, snapshots } = scene;
  const [sheet] = documents.filter(({ name }) => name === 'data-sheet.csv');
  const upload = documentUrl('data-sheet.csv', 'data_sheet');
  const sheetText = Buffer.from(sheet?.input.bytes ?? []).toString('utf8');
  const event = {
    type: 'accident',
    occurred_at: '2028-01-01T00:00:00Z',
    data: { note: 'again' },
    key: 'first',
  };
  const item = (battery: keyof Scene['batteries']) => `/v1/passports/items/${batteries[battery].passport}`;
  const none = `/v1/passports/items/${nothing}`;
  return {
    'passport_products.list': [get('/v1/passports/products', only(owners, 200, 200))],
    'passport_products.show': [get(productUrl, only(owners, 200, 404))],
    'passport_products.progress': [get(`${productUrl}/progress`, only(owners, 200, 404))],
    'passport_documents.upload': [
      { path: upload, body: sheetText, headers: csv, status: only(producers, 202, 404) },
      {
        path: `${upload}&rules=${nothing}`,
        body: sheetText,
        headers: csv,
        status: only(producers, 404, 404),
      },
    ],
    'passport_documents.list': [
      get('/v1/passports/documents?limit=200', only(owners, 200, 200)),
      get('/v1/passports/documents?state=REJECTED', only(owners, 200, 200)),
    ],
    'passport_documents.show': [uploaded.read, uploaded.rejected].flatMap((id) => [
      // A producer names what it has uploaded: an id alone is found in lists of jobs.
      get(`/v1/passports/documents/${id}`, each([owners, 200, 404], [['producer'], 400, 400])),
      get(`/v1/passports/documents/${id}?sha256=${'0'.repeat(64)}`, only([...owners, 'producer'], 404, 404)),
    ]),
    'passport_documents.content': [uploaded.read, uploaded.rejected].map((id) =>
      get(`/v1/passports/documents/${id}/content`, only(owners, 200, 404)),
    ),
    'passport_facts.list': [
      '?limit=200',
      `?limit=200&document=${uploaded.read}`,
      `?limit=200&snapshot=${snapshots[0]}`,
    ].map((query) => get(`/v1/passports/facts${query}`, only(owners, 200, 200))),
    'passport_snapshots.build': [
      json('/v1/passports/products/nothing/snapshots', undefined, only(operators, 404, 404)),
    ],
    'passport_snapshots.rebuild': [
      json(`/v1/passports/snapshots/${nothing}/build`, undefined, only(operators, 404, 404)),
    ],
    'passport_snapshots.list': [get('/v1/passports/snapshots', only(owners, 200, 200))],
    'passport_snapshots.show': snapshots.map((id) =>
      get(`/v1/passports/snapshots/${id}`, only(owners, 200, 404)),
    ),
    'passport_rules.list': [get('/v1/passports/rules', only(owners, 200, 200))],
    'passport_rules.show': [get(`/v1/passports/rules/${rules}`, only(owners, 200, 404))],
    'passport_rules.draft': [
      json('/v1/passports/rules', { package: rulePackage }, only(operators, 201, 201)),
    ],
    'passport_rules.check': [
      json('/v1/passports/rules/check', { package: rulePackage }, only(operators, 200, 200)),
    ],
    'passport_rules.test': [json(`/v1/passports/rules/${rules}/test`, undefined, only(operators, 200, 404))],
    'passport_rules.publish': [
      json(`/v1/passports/rules/${rules}/publish`, undefined, only(operators, 200, 404)),
    ],
    'passport_rules.deprecate': [
      json(`/v1/passports/rules/${nothing}/deprecate`, undefined, only(operators, 404, 404)),
    ],
    'passport_rules.retire': [
      json(`/v1/passports/rules/${nothing}/retire`, undefined, only(operators, 404, 404)),
    ],
    'passports.list': [get('/v1/passports?limit=200', only(owners, 200, 200))],
    'passports.show': [
      ...[model, ...Object.values(batteries)].map(({ passport }) =>
        get(`/v1/passports/${passport}`, only([...owners, ...guests], 200, 404)),
      ),
      get(`/v1/passports/${newcomer}`, each([owners, 200, 404], [guests, 404, 404])),
    ],
    'passport_items.add': [
      { path: `${productUrl}/items`, body: itemsCsv, headers: csv, status: only(producers, 200, 404) },
    ],
    'passports.status': [json(`${none}/status`, { status: 'waste' }, only(operators, 404, 404))],
    'passports.predecessors': [
      json(`${none}/predecessors`, { predecessors: [nothing] }, only(operators, 404, 404)),
    ],
    'passports.cease': [json(`${none}/cease`, { reason: 'recycled' }, only(operators, 404, 404))],
    'passport_events.append': [json(`${item('active')}/events`, event, only(producers, 201, 404))],
    'passport_events.list': [
      get(`${item('active')}/events`, only([...owners, 'interest'], 200, 404)),
      get(`${item('ceased')}/events`, each([owners, 200, 404], [['interest'], 410, 404])),
      get(`/v1/passports/items/${newcomer}/events`, each([owners, 200, 404], [['interest'], 404, 404])),
    ],
  };
}

function versions({ batteries, model, unpublished, exports }: Scene): Table {
  const path = (id: string, part: string) => `/v1/passports/versions/${id}${part}`;
  const part = (name: string): readonly Case[] => [
    ...[batteries.active, batteries.superseded, batteries.revoked, model].map(({ version }) =>
      get(path(version, `/${name}`), only([...owners, ...guests], 200, 404)),
    ),
    get(path(unpublished, `/${name}`), each([owners, 200, 404], [guests, 404, 404])),
    get(path(batteries.ceased.version, `/${name}`), each([owners, 200, 404], [guests, 410, 404])),
  ];
  const issue = { rules: nothing };
  return {
    'passport_versions.issue': [json(`${productUrl}/versions`, issue, only(operators, 404, 404))],
    'passport_versions.issue_item': [
      json(`/v1/passports/items/${batteries.active.passport}/versions`, issue, only(operators, 404, 404)),
    ],
    'passport_versions.issue_items': [json(path(model.version, '/items'), issue, only(operators, 404, 404))],
    'passport_versions.list': [get('/v1/passports/versions?limit=200', only(owners, 200, 200))],
    'passport_versions.show': [batteries.active.version, batteries.revoked.version, unpublished].map((id) =>
      get(path(id, ''), only(owners, 200, 404)),
    ),
    'passport_versions.receipt': part('receipt'),
    'passport_versions.payload': part('payload'),
    'passport_versions.proof': part('proof'),
    'passport_versions.code': part('code'),
    'passport_exports.request': [json(path(nothing, '/exports'), {}, only(operators, 404, 404))],
    'passport_exports.of_version': [get(path(batteries.active.version, '/exports'), only(owners, 200, 404))],
    'passport_exports.list': [get('/v1/passports/exports', only(owners, 200, 200))],
    'passport_exports.show': exports.map((id) => get(`/v1/passports/exports/${id}`, only(owners, 200, 404))),
    'passport_exports.content': exports.map((id) =>
      get(`/v1/passports/exports/${id}/content`, only(owners, 200, 404)),
    ),
    'passport_versions.activate': [json(path(nothing, '/activate'), undefined, only(operators, 404, 404))],
    'passport_versions.revoke': [json(path(nothing, '/revoke'), { reason: 'x' }, only(operators, 404, 404))],
    'passport_versions.replay': [
      json(path(batteries.active.version, '/replay'), undefined, only(owners, 200, 404)),
    ],
  };
}

/** Where labels lead. */
function published({ batteries, model, unpublished }: Scene): Table {
  const form = (link: string, format: string, more = '') =>
    `${link}?format=${encodeURIComponent(format)}${more}`;
  /** Credentials are of versions that count alone. */
  const ended = (link: string): readonly Case[] =>
    formatNames.map((format) =>
      get(form(link, format), everybody(format === 'jsonld' || format === 'vc+jwt' ? 410 : 200)),
    );
  const { active, superseded, revoked, ceased } = batteries;
  return {
    'passport_link.show': [
      ...formatNames.map((format) => get(form(active.link, format), everybody(200))),
      get(form(active.link, 'html', '&lang=de'), everybody(200)),
      get(form(active.link, 'pdf', '&label=50x30'), everybody(200)),
      { path: active.link, headers: { accept: 'application/vc' }, status: everybody(200) },
      { path: active.link, headers: { accept: 'image/webp' }, status: everybody(406) },
      ...ended(superseded.link),
      ...ended(revoked.link),
      ...formatNames.map((format) => get(form(ceased.link, format), everybody(410))),
      // Versions that were never active do not exist here, for their issuer neither.
      ...formatNames.map((format) =>
        get(form(superseded.link, format, `&version=${unpublished}`), everybody(404)),
      ),
      get(`/01/${product.gtin}/21/SP100-000005`, everybody(404)),
      get(`/01/${product.gtin}/21/NONE`, everybody(404)),
      get(form(`/01/${product.gtin}/21/NONE`, 'json'), everybody(404)),
      get(`${active.link}?version=x`, everybody(400)),
    ],
    'passport_link.model': formatNames.map((format) => get(form(model.link, format), everybody(200))),
    'passport_link.status': Object.values(batteries).map(({ link }) => get(`${link}/status`, everybody(200))),
    'passport_link.model_status': [get(`${model.link}/status`, everybody(200))],
    'passport_keys.did': [get('/.well-known/did.json', everybody(200))],
  };
}

/** A field of each point, by the path that EN 18222 takes. */
const fields = ['ratedCapacity', 'safetyMeasures', 'testReports', 'accidents'] as const;

function standard({ batteries }: Scene): Table {
  const id = (link: string) => encodeURIComponent(`https://passports.example${link}`);
  const { active, ceased } = batteries;
  const paths = [id(active.link), active.passport, id(ceased.link)];
  const forms = (url: string, more = ''): readonly Case[] =>
    paths.flatMap((each) => [
      get(`${url}/${each}${more && `?${more}`}`, everybody(200)),
      get(`${url}/${each}?representation=full${more && `&${more}`}`, everybody(200)),
    ]);
  const elements = fields.map((name) => {
    const attribute = attributeNamed(name);
    if (!attribute) throw new Error(`there is no attribute ${name}`);
    const { group, point } = attribute;
    return { group, name, status: everybody(({ points }) => (points.includes(point) ? 200 : 403)) };
  });
  return {
    'dpps.read': [...forms('/v1/dpps'), get('/v1/dpps/nothing', everybody(404))],
    'dpps.by_product': forms('/v1/dppsByProductId'),
    'dpps.by_date': [
      ...forms('/v1/dppsByIdAndDate', 'date=2999-01-01T00:00:00Z'),
      get(`/v1/dppsByIdAndDate/${active.passport}?date=yesterday`, everybody(400)),
    ],
    'dpps.by_products': [
      json('/v1/dppsByProductIds', [`https://passports.example${active.link}`], everybody(200)),
      json('/v1/dppsByProductIds', ['no link'], everybody(400)),
    ],
    'dpps.element': elements.flatMap(({ group, name, status }) => {
      const path = `elements/${encodeURIComponent(`$.${group}.${name}`)}`;
      return [
        get(`/v1/dpps/${id(active.link)}/${path}`, status),
        get(`/v1/dpps/${id(ceased.link)}/${path}`, everybody(404)),
      ];
    }),
    'dpps.element_of': elements.map(({ group, name, status }) =>
      get(`/v1/dpps/${active.passport}/elements/${group}/${name}`, status),
    ),
  };
}

/** Everything of the core that can be read: search, time line, events, jobs, and what there is beside them. */
export function coreTable({ batteries, model, documents: uploaded, jobs, events }: Scene): Table {
  const anyone = [...owners, 'producer'] as const;
  const subjects = [
    `passport:${batteries.active.passport}`,
    `passport:${batteries.ceased.passport}`,
    `passport:${model.passport}`,
    'battery:SP100-000002',
    `document:${uploaded.rejected}`,
    `document:${uploaded.rejectedHash}`,
    ...jobs.map((id) => `job:${id}`),
  ];
  const words = [
    'MARKER',
    'SP100',
    'bill-of',
    'individual',
    'test-re',
    uploaded.rejectedHash,
    model.passport,
  ];
  return {
    // First: later it names the subjects that these callers asked for and were refused.
    'audit.list': [get('/v1/audit?limit=200', only(['admin', 'auditor'], 200, 200))],
    'jobs.list': ['?limit=200', '?status=FAILED', '?kind=passports.build-snapshot'].map((query) =>
      get(`/v1/jobs${query}`, only(anyone, 200, 200)),
    ),
    'jobs.show': jobs.map((id) => get(`/v1/jobs/${id}`, only(anyone, 200, 404))),
    'jobs.counts': [get('/v1/jobs/counts', only(owners, 200, 200))],
    'lanes.list': [get('/v1/lanes', only(owners, 200, 200))],
    'lanes.show': [get('/v1/lanes/1', only(owners, 404, 404))],
    'queues.list': [get('/v1/queues', only(owners, 200, 200))],
    'queues.show': [get('/v1/queues/passports', only(owners, 200, 200))],
    'dead_letters.list': [get('/v1/dead-letters?search=MARKER', only(owners, 200, 200))],
    'dead_letters.show': [get('/v1/dead-letters/1', only(owners, 404, 404))],
    'schedules.list': [get('/v1/schedules', only(owners, 200, 200))],
    'schedules.show': [get('/v1/schedules/nothing', only(owners, 404, 404))],
    'events.types': [get('/v1/event-types', only(owners, 200, 200))],
    'events.list': [get('/v1/events?limit=1000', only(owners, 200, 200))],
    'events.show': events
      .slice(0, 10)
      .map((id) => get(`/v1/events/${encodeURIComponent(id)}`, only(owners, 200, 404))),
    'timeline.read': subjects.map((subject) =>
      get(`/v1/timeline/${encodeURIComponent(subject)}`, only(owners, 200, 200)),
    ),
    'search.read': words.map((word) =>
      get(`/v1/search?q=${encodeURIComponent(word)}`, only(anyone, 200, 200)),
    ),
    'keys.list': [get('/v1/keys', only(['admin'], 200, 200))],
    'tenants.list': [
      get('/v1/tenants', (caller) =>
        caller.name === 'admin of the home tenant' ? 200 : only([], 403, 403)(caller),
      ),
    ],
  };
}
