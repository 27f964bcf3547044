import { messageOf, TallymanError } from '../errors.ts';

/** The address of a service without what must not be logged: no user, no password, no query. */
export function addressOf(url: string): string {
  const { protocol = '', host = '', pathname = '' } = URL.canParse(url) ? new URL(url) : {};
  if (host === '') return 'an address that cannot be shown';
  // An @ in the path: part of a password that was not percent-encoded.
  return `${protocol}//${host}${pathname === '/' || pathname.includes('@') ? '' : pathname}`;
}

/** What `import()` or `require` threw, in words that say what to install. */
export function missingPackage(error: unknown, name: string, usedFor: string): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const missing = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
  if (!missing || !messageOf(error).includes(name)) return error;
  return new TallymanError(
    'MISSING_PACKAGE',
    `${usedFor} needs the package "${name}", which is not installed: run "npm install ${name}"`,
    { cause: error, details: { package: name } },
  );
}
