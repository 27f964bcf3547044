import { passportAccess } from '../../../../src/apps/passports/access.ts';
import type { AccessPoint, Reader } from '../../../../src/apps/passports/compile/types.ts';
import { type Role, roles } from '../../../../src/host/roles.ts';
import { Tenants } from '../../../../src/server/access/tenants.ts';
import type { TestServer } from '../../../server/support.ts';
import { readableIn } from './readable.ts';

/** Whose passports they are; another tenant; and the operator's own tenant, which manages what all share. */
export const issuer = 'acme';
const other = 'other';
const home = 'default';

/** Guests: each access that the app declares, and one that another app might declare. */
const guests = {
  interest: 'passports.legitimate_interest',
  authority: 'passports.authority',
  stranger: 'elsewhere.anything',
} as const;
type Guest = keyof typeof guests;
type Own = Exclude<Role, 'guest'> | Guest;

/** What the regulation and the decision on keys say, said once more: not what the code makes of it. */
const readers: Readonly<Record<Own, Reader>> = {
  admin: 'owner',
  operator: 'owner',
  auditor: 'owner',
  producer: 'public',
  interest: 'legitimate_interest',
  authority: 'authority',
  stranger: 'public',
};
const pointsOf: Readonly<Record<Reader, readonly AccessPoint[]>> = {
  public: [1],
  legitimate_interest: [1, 2, 4],
  authority: [1, 2, 3],
  owner: [1, 2, 3, 4],
};

export const owners = ['admin', 'operator', 'auditor'] as const satisfies readonly Own[];
const ownNames = [...owners, 'producer', 'interest', 'authority', 'stranger'] as const;
const keyless = ['nobody', 'unknown key', 'revoked key', 'expired key'] as const;
export type CallerName =
  | Own
  | `${Own} of another tenant`
  | 'admin of the home tenant'
  | (typeof keyless)[number];

export interface Seen {
  readonly status: number;
  readonly type: string | null;
  /** Headers and body, with everything that is encoded in it. */
  readonly text: string;
}

export interface TestCaller {
  readonly name: CallerName;
  /** Its role or access, whatever its tenant; undefined: it has no key that counts. */
  readonly own: Own | undefined;
  readonly isForeign: boolean;
  /** What it is at a public route. */
  readonly reader: Reader;
  readonly points: readonly AccessPoint[];
  ask(
    method: string,
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Seen>;
}

/** Every kind of caller there is: a role or an access that nobody has thought of here makes this throw. */
export async function callersOf(test: TestServer): Promise<readonly TestCaller[]> {
  const known: readonly string[] = [...ownNames, 'guest'];
  const missing = [
    ...roles.filter((role) => !known.includes(role)),
    ...passportAccess.map(({ name }) => name).filter((name) => !Object.values<string>(guests).includes(name)),
  ];
  if (missing.length > 0) throw new Error(`no caller has ${missing.join(', ')}`);
  const tenants = new Tenants(test.tallyman.database);
  for (const tenant of [issuer, other])
    if (!(await tenants.list()).some(({ id }) => id === tenant)) await tenants.create(tenant);
  const key = (tenantId: string, own: Own, more: { readonly expiresAt?: Date } = {}) =>
    test.keys.create({ tenantId, name: own, ...roleOf(own), ...more });
  const callers: TestCaller[] = [];
  for (const own of ownNames) {
    const reader = readers[own];
    const of = { own, ask: asking(test, (await key(issuer, own)).key) };
    callers.push({ name: own, ...of, isForeign: false, reader, points: pointsOf[reader] });
    const foreign = { own, ask: asking(test, (await key(other, own)).key) };
    callers.push({ name: `${own} of another tenant`, ...foreign, isForeign: true, ...anybody });
  }
  const operator = { own: 'admin' as const, ask: asking(test, (await key(home, 'admin')).key) };
  callers.push({ name: 'admin of the home tenant', ...operator, isForeign: true, ...anybody });
  const revoked = await key(issuer, 'admin');
  await test.keys.revoke(revoked.apiKey.id);
  const expired = await key(issuer, 'admin', { expiresAt: new Date('2020-01-01T00:00:00Z') });
  const keys = {
    nobody: undefined,
    'unknown key': `tlm_${'a'.repeat(12)}_${'b'.repeat(43)}`,
    'revoked key': revoked.key,
    'expired key': expired.key,
  } as const;
  for (const name of keyless)
    callers.push({ name, own: undefined, ask: asking(test, keys[name]), isForeign: true, ...anybody });
  return callers;
}

const anybody = { reader: 'public', points: pointsOf.public } as const;

const roleOf = (own: Own): { readonly role: Role; readonly access?: string } =>
  own in guests ? { role: 'guest', access: guests[own as Guest] } : { role: own as Exclude<Own, Guest> };

const asking =
  (test: TestServer, key: string | undefined): TestCaller['ask'] =>
  async (method, path, body, headers = {}) => {
    const isText = typeof body === 'string';
    const response = await fetch(`${test.url}${path}`, {
      method,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    return {
      status: response.status,
      type: response.headers.get('content-type')?.split(';')[0] ?? null,
      text: `${JSON.stringify([...response.headers])}\n${readableIn(bytes)}`,
    };
  };
