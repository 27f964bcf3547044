/** Who calls: a certificate says zone and role, and those say what is allowed. */
import { streamName, type ZonePair } from './delivery.ts';
import { BoundaryError } from './errors.ts';
import { isSlug } from './zones.ts';

const roles = ['producer', 'consumer', 'peer'] as const;
export type Role = (typeof roles)[number];

export interface Identity {
  readonly zone: string;
  /** `local`: a caller on this machine, where the node serves without TLS. It may do what anyone of its zone may. */
  readonly role: Role | 'local';
  /** For audit and errors. */
  readonly name: string;
}

export interface IdentityRules {
  /** `spiffe://<trustDomain>/zone/<slug>/<role>` */
  readonly trustDomain: string;
  /** Common names that count where a certificate has no URI, as `zone/role`. Default: none. */
  readonly commonNames?: Readonly<Record<string, string>>;
}

export interface CertificateNames {
  /** As `X509Certificate` of Node gives them: `URI:…, DNS:…`. */
  readonly subjectAltName: string | undefined;
  readonly commonName: string | undefined;
}

/** The identity in a certificate that is valid otherwise, or why there is none. */
export function identityOf(names: CertificateNames, rules: IdentityRules): Identity {
  const uris = urisIn(names.subjectAltName ?? '');
  if (uris.length > 1)
    throw unknown(`the certificate has ${uris.length} URIs as alternative names; exactly one is expected`);
  const [uri] = uris;
  if (uri !== undefined) return inUri(uri, rules);
  const meant = Object.entries(rules.commonNames ?? {}).find(([name]) => name === names.commonName)?.[1];
  if (meant === undefined)
    throw unknown(
      `the certificate has no URI spiffe://${rules.trustDomain}/zone/<zone>/<role> as alternative name`,
    );
  const [zone = '', role = ''] = meant.split('/');
  return made(zone, role, `CN=${names.commonName}`);
}

function inUri(uri: string, { trustDomain }: IdentityRules): Identity {
  const start = `spiffe://${trustDomain}/zone/`;
  const [zone = '', role = '', ...more] = uri.startsWith(start) ? uri.slice(start.length).split('/') : [];
  if (more.length > 0 || !isSlug(zone))
    throw unknown(`the certificate's URI is ${JSON.stringify(uri)}; expected ${start}<zone>/<role>`);
  return made(zone, role, uri);
}

function made(zone: string, role: string, name: string): Identity {
  const known = roles.find((each) => each === role);
  if (!known || !isSlug(zone)) throw unknown(`${name} names no role; expected ${roles.join(', ')}`);
  return { zone, role: known, name };
}

/** Values with special characters are quoted as JSON: a name cannot pretend to be two. */
function urisIn(names: string): string[] {
  const uris: string[] = [];
  const entry = /([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
  for (let found = entry.exec(names); found; found = entry.exec(names)) {
    const [, kind, value = ''] = found;
    if (kind === 'URI') uris.push(value.startsWith('"') ? JSON.parse(value) : value);
    if (entry.lastIndex === names.length) break;
  }
  return uris;
}

export type Action =
  | { readonly kind: 'append'; readonly stream: ZonePair }
  | { readonly kind: 'find'; readonly from: string }
  | { readonly kind: 'consume'; readonly stream: ZonePair }
  | { readonly kind: 'deliver'; readonly stream: ZonePair }
  | { readonly kind: 'frontier'; readonly stream: ZonePair }
  | { readonly kind: 'reconcile'; readonly stream: ZonePair }
  | { readonly kind: 'put objects' }
  /** `unnamed`: an object that no fact names of those which the caller could fetch. */
  | { readonly kind: 'get objects'; readonly unnamed?: string };

export interface NodeZone {
  readonly zone: string;
  /** Zones that producers may send facts to. */
  readonly sendsTo: readonly string[];
}

/** Throws PERMISSION_DENIED if the caller may not do this on a node of this zone. */
export function authorize(who: Identity, action: Action, node: NodeZone): void {
  const reason = objection(who, action, node);
  if (reason !== undefined)
    throw new BoundaryError(
      'PERMISSION_DENIED',
      'not_allowed',
      `${who.name} may not ${action.kind}: ${reason}`,
    );
}

function objection(who: Identity, action: Action, node: NodeZone): string | undefined {
  const is = (...allowed: Role[]) => who.role === 'local' || allowed.some((role) => role === who.role);
  const isPeer = who.role === 'peer';
  const isHere = who.zone === node.zone;
  switch (action.kind) {
    case 'append':
      if (!is('producer')) return `its role is ${who.role}, and only a producer may`;
      if (who.zone !== action.stream.from)
        return `it belongs to zone "${who.zone}" and cannot speak for "${action.stream.from}"`;
      if (!node.sendsTo.includes(action.stream.to))
        return `zone "${action.stream.to}" is not on the list of its node`;
      return undefined;
    case 'find':
      return isHere && action.from === who.zone ? undefined : `it belongs to zone "${who.zone}"`;
    case 'consume':
      if (isPeer)
        return who.zone === action.stream.to ? undefined : `${streamName(action.stream)} does not go to it`;
      if (!is('consumer')) return `its role is ${who.role}, and only a consumer or a peer may`;
      return isHere ? undefined : `it belongs to zone "${who.zone}"`;
    case 'deliver':
      if (!isPeer && who.role !== 'local') return `its role is ${who.role}, and only a peer may`;
      if (isPeer && who.zone !== action.stream.from)
        return `it belongs to zone "${who.zone}" and cannot deliver for "${action.stream.from}"`;
      return action.stream.to === node.zone ? undefined : `this node belongs to zone "${node.zone}"`;
    case 'reconcile':
      if (!isPeer && who.role !== 'local') return `its role is ${who.role}, and only a peer may`;
      return [action.stream.from, action.stream.to].includes(who.zone)
        ? undefined
        : `${streamName(action.stream)} does not concern zone "${who.zone}"`;
    case 'frontier':
      return isHere || [action.stream.from, action.stream.to].includes(who.zone)
        ? undefined
        : `${streamName(action.stream)} does not concern zone "${who.zone}"`;
    case 'put objects':
      return isPeer || (is('producer') && isHere)
        ? undefined
        : `its role is ${who.role} in zone "${who.zone}"`;
    case 'get objects':
      if (isPeer && !node.sendsTo.includes(who.zone)) return `nothing goes to zone "${who.zone}" from here`;
      if (!isPeer && !isHere) return `it belongs to zone "${who.zone}"`;
      if (action.unnamed === undefined || is('producer')) return undefined;
      return isPeer
        ? `no fact to zone "${who.zone}" names ${action.unnamed}`
        : `no fact names ${action.unnamed}`;
  }
}

const unknown = (message: string): BoundaryError =>
  new BoundaryError('UNAUTHENTICATED', 'no_identity', message);
