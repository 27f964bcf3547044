import { createHash } from 'node:crypto';
import { accessOfFact } from '../../../../src/apps/passports/compile/facts.ts';
import { documents, product } from '../../../../src/apps/passports/compile/sample/index.ts';
import {
  type AccessPoint,
  accessPoints,
  type FactType,
  type Payload,
  type Proof,
} from '../../../../src/apps/passports/compile/types.ts';
import { exportFormatNames } from '../../../../src/apps/passports/store/exports.ts';
import type { Ask } from '../../../server/support.ts';
import {
  csv,
  documentUrl,
  itemsCsv,
  made,
  type PassportServer,
  passportServer,
  productUrl,
  putSample,
  signingConfig,
} from '../api.ts';
import { issuer, type TestCaller } from './callers.ts';

/** A text that must not reach everybody: it belongs to an access point, to the issuer alone, or to nobody. */
export interface Secret {
  readonly text: string;
  readonly of: AccessPoint | 'issuer' | 'nobody';
}

export const maySee = ({ points, reader, isForeign }: TestCaller, { of }: Secret): boolean => {
  if (of === 'nobody') return false;
  return of === 'issuer' ? reader === 'owner' && !isForeign : points.includes(of);
};

/** A value in each document that is not public: what is replaced by a marker. */
const planted: readonly (readonly [document: string, from: string, marker: string, point: AccessPoint])[] = [
  ['bill-of-materials.csv', 'PVDF', 'MARKERMATERIAL', 2],
  ['service.csv', 'safety.pdf', 'MARKERSERVICE', 2],
  ['test-reports.csv', 'pack-100-2026', 'MARKERREPORT', 3],
  ['individual.csv', 'accidents,none', 'accidents,MARKERACCIDENT', 4],
];

/** One battery for each state that a reader can meet. */
const serials = {
  /** Its newest version is signed and was never active. */
  superseded: 'SP100-000001',
  active: 'SP100-000002',
  ceased: 'SP100-000003',
  revoked: 'SP100-000004',
} as const;
type State = keyof typeof serials;

/** A battery whose passport was never issued. */
const newcomer = 'SP100-000005';

export interface Battery {
  readonly passport: string;
  /** The version that is or was published. */
  readonly version: string;
  /** `/01/…/21/…` */
  readonly link: string;
}

export interface Scene extends PassportServer {
  readonly secrets: readonly Secret[];
  readonly batteries: Readonly<Record<State, Battery>>;
  readonly model: { readonly passport: string; readonly version: string; readonly link: string };
  /** Of the battery `superseded`. */
  readonly unpublished: string;
  /** The passport of a battery that has no version. */
  readonly newcomer: string;
  readonly rules: string;
  readonly snapshots: readonly string[];
  /** One of CSV that was read, one of JSON that was rejected. */
  readonly documents: { readonly read: string; readonly rejected: string; readonly rejectedHash: string };
  /** Of the battery `active`, for its owner, in every form. */
  readonly exports: readonly string[];
  readonly jobs: readonly string[];
  readonly events: readonly string[];
}

/** The sample with markers everywhere where something is withheld: documents, facts, problems, errors, individual data. */
export async function markedScene(): Promise<Scene> {
  const test = await passportServer();
  const ask = await test.as('admin', issuer);
  const secrets: Secret[] = [
    { of: 'nobody', text: signingConfig['passports.signingKey'] },
    ...documents.flatMap(({ name }): readonly Secret[] =>
      planted.flatMap(([document, , , of]) => (document === name ? [{ of, text: name }] : [])),
    ),
  ];
  const rules = await putSample(ask);
  const add = (serial: string) =>
    made(ask('POST', `${productUrl}/items`, `${itemsCsv.split('\n')[0]}\n${serial},2027-01,Here,`, csv));
  await add(serials.revoked);
  const read = await uploadMarked(ask, rules, secrets);
  await test.settle();
  const batteries = await batteriesIn(ask);
  await live(ask, batteries, secrets);
  await fail(test, ask, secrets);
  const rejected = await reject(test, ask, secrets);
  const unpublished = await unpublish(test, ask, batteries.superseded.passport, rules);
  const exports = await exportAll(test, ask, batteries.active.version);
  secrets.push(...(await salts(test)));
  await add(newcomer);
  const { items: unissued } = await made(ask('GET', `/v1/passports?serial=${newcomer}`));
  const { items: models } = await made(ask('GET', '/v1/passports?limit=200'));
  const model = models.find(({ serial, product_id: id }: Row) => serial === null && id === product.id);
  const ids = async (url: string): Promise<readonly string[]> =>
    (await made(ask('GET', url))).items.map(({ id, event_id: event }: Row) => id ?? event);
  return {
    ...test,
    secrets,
    batteries,
    model: { passport: model.id, version: model.active_version_id, link: `/01/${product.gtin}` },
    unpublished,
    newcomer: unissued[0].id,
    rules,
    snapshots: await ids('/v1/passports/snapshots'),
    documents: { read, ...rejected },
    exports,
    jobs: await ids('/v1/jobs?limit=200'),
    events: await ids('/v1/events?limit=1000'),
  };
}

type Row = Readonly<Record<string, string | null>>;

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Uploads the documents of the sample, and issues its passports; answers the version of one of them. */
async function uploadMarked(ask: Ask, rules: string, secrets: Secret[]): Promise<string> {
  let last = '';
  for (const { name, input } of documents) {
    let text = Buffer.from(input.bytes).toString('utf8');
    for (const [document, from, to, of] of planted) {
      if (document !== name) continue;
      if (!text.includes(from)) throw new Error(`${name} has no ${from}`);
      text = text.replace(from, to);
      secrets.push({ of, text: to.replace('accidents,', '') });
    }
    for (const [document, , , of] of planted) if (document === name) secrets.push({ of, text: sha256(text) });
    const url = documentUrl(
      name,
      input.kind,
      `&rules=${rules}&with_items=true&issued_at=2027-02-18T00:00:00Z`,
    );
    last = (await made(ask('POST', url, text, csv))).version_id;
  }
  return last;
}

async function batteriesIn(ask: Ask): Promise<Scene['batteries']> {
  const found = async (state: State): Promise<Battery> => {
    const { items } = await made(ask('GET', `/v1/passports?serial=${serials[state]}`));
    const [{ id: passport, active_version_id: version }] = items;
    return { passport, version, link: `/01/${product.gtin}/21/${serials[state]}` };
  };
  return {
    superseded: await found('superseded'),
    active: await found('active'),
    ceased: await found('ceased'),
    revoked: await found('revoked'),
  };
}

/** What happens to batteries: their individual data are of point 4; why something ended is the issuer's business. */
async function live(
  ask: Ask,
  { active, ceased, revoked }: Scene['batteries'],
  secrets: Secret[],
): Promise<void> {
  for (const [{ passport }, note] of [
    [active, 'MARKEREVENT'],
    [ceased, 'MARKERLASTEVENT'],
  ] as const) {
    const event = { type: 'accident', occurred_at: '2028-01-01T00:00:00Z', data: { note }, key: 'first' };
    await made(ask('POST', `/v1/passports/items/${passport}/events`, event));
  }
  await made(ask('POST', `/v1/passports/items/${active.passport}/status`, { status: 'remanufactured' }));
  await made(
    ask('POST', `/v1/passports/items/${ceased.passport}/cease`, { reason: 'MARKERCEASED at a plant' }),
  );
  await made(ask('POST', `/v1/passports/versions/${revoked.version}/revoke`, { reason: 'MARKERREVOKED' }));
  secrets.push(
    { of: 4, text: 'MARKEREVENT' },
    { of: 4, text: 'remanufactured' },
    // The passport has ceased: nobody outside reads its data any more.
    { of: 'issuer', text: 'MARKERLASTEVENT' },
    { of: 'issuer', text: 'MARKERCEASED' },
    { of: 'issuer', text: 'MARKERREVOKED' },
  );
}

const otherProduct = '/v1/passports/products/pack-200';

/** Two documents contradict each other about a material: the job that builds the snapshot fails, and its error names it. */
async function fail(test: PassportServer, ask: Ask, secrets: Secret[]): Promise<void> {
  const { id: _, manufacturerId, gtin: __, ...model } = product;
  await made(ask('PUT', otherProduct, { ...model, gtin: '09520123456795', manufacturer_id: manufacturerId }));
  for (const mass of [1, 2]) {
    const text = `component,material,mass,unit\nanode,MARKERFACT,${mass},kg\n`;
    const url = `${otherProduct}/documents?kind=bill_of_materials&name=bom-${mass}.csv`;
    await made(ask('POST', url, text, csv));
    secrets.push({ of: 'issuer', text: sha256(text) });
  }
  await test.settle();
  await made(ask('POST', `${otherProduct}/snapshots`));
  await test.settle();
  const { items } = await made(ask('GET', '/v1/jobs?kind=passports.build-snapshot&status=FAILED'));
  if (!items[0]?.last_error.message.includes('MARKERFACT')) throw new Error('no job failed with the marker');
  secrets.push({ of: 'issuer', text: 'MARKERFACT' });
}

/** A document whose problems quote it. */
async function reject(
  test: PassportServer,
  ask: Ask,
  secrets: Secret[],
): Promise<{ readonly rejected: string; readonly rejectedHash: string }> {
  const text = JSON.stringify([{ attribute: 'ratedCapacity', value: 'MARKERPROBLEM', unit: 'Ah' }]);
  const url = `${otherProduct}/documents?kind=data_sheet&name=MARKERNAME.json`;
  const { version_id: rejected } = await made(ask('POST', url, text));
  await test.settle();
  const { problems } = await made(ask('GET', `/v1/passports/documents/${rejected}`));
  if (!problems?.[0]?.message.includes('MARKERPROBLEM')) throw new Error('no problem has the marker');
  const rejectedHash = sha256(text);
  secrets.push(
    { of: 'issuer', text: 'MARKERPROBLEM' },
    { of: 'issuer', text: 'MARKERNAME' },
    { of: 'issuer', text: rejectedHash },
  );
  return { rejected, rejectedHash };
}

/** A version that is signed and was never active: made active as all are, then taken back where no guard looks. */
async function unpublish(test: PassportServer, ask: Ask, passport: string, rules: string): Promise<string> {
  const url = `/v1/passports/items/${passport}/versions`;
  const { version_id: id } = await made(ask('POST', url, { rules, issued_at: '2028-06-01T00:00:00Z' }));
  await test.settle();
  await test.tallyman.database.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    const { rowCount } = await tx.query(
      `update passports.versions set state = 'SIGNED', active_at = null where id = $1 and state = 'ACTIVE'`,
      [id],
    );
    if (rowCount !== 1) throw new Error('the new version did not become active');
  });
  return id;
}

/** Those that need nothing besides the passport. */
async function exportAll(test: PassportServer, ask: Ask, version: string): Promise<readonly string[]> {
  const formats = exportFormatNames.filter((format) => format !== 'catenax');
  const ids: string[] = [];
  for (const format of formats) {
    const request = { format, reader: 'owner' };
    ids.push((await made(ask('POST', `/v1/passports/versions/${version}/exports`, request))).id);
  }
  await test.settle();
  return ids;
}

/** With a salt one can try candidates: those of a part and of a fact are for its readers, that of a version for nobody. */
async function salts(test: PassportServer): Promise<readonly Secret[]> {
  const rows = await test.rows<{ salt: string; payload: string; proof: string }>(
    'select v.salt, a.payload, a.proof from passports.versions v join passports.artefacts a on a.version_id = v.id',
  );
  const found = rows.flatMap(({ salt, payload, proof }): readonly Secret[] => {
    const parts = accessPoints.map((of) => ({ of, text: (JSON.parse(payload) as Payload).points[of].salt }));
    const facts = (JSON.parse(proof) as Proof).nodes.flatMap(({ type, data }): readonly Secret[] =>
      type === 'fact'
        ? [
            {
              of: accessOfFact(data.fact_type as FactType, String(data.key)),
              text: String(data.salt),
            },
          ]
        : [],
    );
    return [{ of: 'nobody', text: salt }, ...parts, ...facts];
  });
  // Equal facts of two batteries have salts of their own; the same node twice is the same secret.
  return [...new Map(found.map((secret) => [secret.text, secret])).values()];
}
