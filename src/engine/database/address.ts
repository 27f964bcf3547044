import { messageOf, TallymanError } from '../errors.ts';
import { codeOf } from './outage.ts';

export function checkUrl(url: unknown): asserts url is string {
  // The driver would take what is missing from PGHOST and the like, or connect to this machine.
  if (typeof url !== 'string' || url.trim() === '')
    throw new TallymanError(
      'BAD_DATABASE_URL',
      `The address of the database is missing: databaseUrl is ${url === '' ? 'empty' : String(url)}. Expected ` +
        'postgres://user:password@host:5432/database. If you pass process.env.DATABASE_URL, check that it is set; ' +
        'startEmbedded() starts a PostgreSQL for development and tells its address.',
    );
  if (!/^postgres(ql)?:\/\//.test(url) || !URL.canParse(url)) {
    throw new TallymanError(
      'BAD_DATABASE_URL',
      `DATABASE_URL is not a PostgreSQL address: expected postgres://user:password@host:5432/database, got "${describe(url)}".`,
    );
  }
}

/** The address without its password. */
export function describe(url: string): string {
  if (!URL.canParse(url)) return url.replace(/:[^:@/]*@/, ':…@');
  const parsed = new URL(url);
  if (parsed.password) parsed.password = '…';
  return decodeURIComponent(parsed.toString());
}

export function connectError(error: unknown, url: string): TallymanError {
  if (error instanceof TallymanError) return error;
  const code = codeOf(error);
  const where = describe(url);
  const inner = error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : messageOf(error);
  const say = (kind: string, text: string) => new TallymanError(kind, text, { cause: error });
  if (code === '28P01' || code === '28000')
    return say(
      'DATABASE_AUTH',
      `PostgreSQL at ${where} refused the login: ${inner}. Check user and password.`,
    );
  if (code === '3D000')
    return say('DATABASE_MISSING', `There is no such database at ${where}: ${inner}. Create it first.`);
  return say(
    'DATABASE_UNREACHABLE',
    `Cannot reach PostgreSQL at ${where}: ${inner}. Is it running, and is the address right?`,
  );
}
