import type { AccessDeclaration } from '../../host/app.ts';
import { readers } from '../../host/roles.ts';
import type { Caller } from '../../host/route.ts';
import type { Reader } from './compile/types.ts';

/**
 * Who sees what of a passport (BPC-12), by key:
 *
 *   no key, a key of another tenant, a producer's key            public                point 1
 *   role guest, access `passports.legitimate_interest`           legitimate interest   points 1, 2 and 4
 *   role guest, access `passports.authority`                     authority             points 1, 2 and 3
 *   role admin, operator or auditor of the issuing tenant        owner                 all: they have the documents
 */
export const passportAccess: readonly AccessDeclaration[] = [
  {
    name: 'passports.legitimate_interest',
    summary:
      'people with a legitimate interest in a battery: repairers, recyclers, buyers (points 1, 2 and 4)',
  },
  {
    name: 'passports.authority',
    summary: 'notified bodies, market surveillance and the Commission (points 1, 2 and 3)',
  },
];

/** Whose eyes a caller has. The frame has made sure that a key is of the tenant whose passport it is. */
export function readerOf({ role, access }: Pick<Caller, 'role' | 'access'>): Reader {
  if ((readers as readonly string[]).includes(role)) return 'owner';
  if (role !== 'guest') return 'public';
  if (access === 'passports.authority') return 'authority';
  return access === 'passports.legitimate_interest' ? 'legitimate_interest' : 'public';
}
