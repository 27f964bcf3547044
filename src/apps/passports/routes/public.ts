import { z } from 'zod';
import { homeTenant } from '../../../host/roles.ts';
import { type AnyRoute, type Call, Reply, route, text } from '../../../host/route.ts';
import { readerOf } from '../access.ts';
import { didDocument } from '../export/did.ts';
import { renderNotice } from '../page/notice.ts';
import { contentSecurityPolicy } from '../page/page.ts';
import { type Language, languageFor, languages } from '../page/texts.ts';
import { labelSizes } from '../print/sizes.ts';
import type { Asked, FoundPassport, PassportAnswers } from '../public/answers.ts';
import { tenantOf } from '../public/find.ts';
import { type LinkedItem, linkedItem } from '../public/link.ts';
import { formatFor, formatNames, formats } from '../public/negotiate.ts';
import type { RouteTools } from './index.ts';

/*
 * Where the label on a battery leads: the GS1 Digital Link, which answers by content type; the status of credentials; and
 * the keys that sign (did:web). Anybody may read them, and a key shows more (access.ts).
 */

const why =
  'the code on a battery is for everybody; a key shows what its holder may see beyond the public part';
const link = z.object({ gtin: z.string(), serial: z.string().optional() });
const model = z.strictObject({ gtin: text(64) });
const battery = model.extend({ serial: text(512) });
const query = z.strictObject({
  lang: z.enum(languages).optional().describe('Instead of Accept-Language'),
  format: z
    .enum(formatNames as [string, ...string[]])
    .optional()
    .describe('Instead of Accept'),
  version: z.uuid().optional().describe('One version, which may have ended; default: the one that counts'),
  label: z
    .enum(Object.keys(labelSizes) as [string, ...string[]])
    .optional()
    .describe('With format=pdf: one label of this size in mm, for a label printer'),
  // GS1 Digital Link lets readers add these; they change nothing here.
  linkType: text(64).optional(),
  context: text(64).optional(),
});
type LinkCall = Call<z.output<typeof link>, z.output<typeof query>, undefined>;

const answering = {
  why,
  tenantOf: async (on: Parameters<typeof tenantOf>[0], { params }: { readonly params: unknown }) => {
    const item = itemOf(params as z.output<typeof link>);
    // Where there is none, the home tenant answers that there is none, as a page that a person can read.
    return (item && (await tenantOf(on, { link: item }))) ?? homeTenant;
  },
};

const itemOf = ({ gtin, serial }: z.output<typeof link>): LinkedItem | undefined =>
  linkedItem(gtin, serial ?? null);

const produces = Object.values(formats).map(([type]) => type);

export function publicRoutes({ answers, means }: RouteTools): readonly AnyRoute[] {
  const passportRoute = (url: string, action: string, summary: string, params: z.ZodObject) =>
    route({
      method: 'GET',
      url,
      action,
      summary,
      roles: [],
      public: answering,
      params,
      query,
      produces,
      response: z.string(),
      handle: (call) => answerLink(answers, call as LinkCall),
    });
  const statusRoute = (url: string, action: string, params: z.ZodObject) =>
    route({
      method: 'GET',
      url,
      action,
      summary: 'Which versions of a passport have ended (W3C Bitstring Status List), signed',
      roles: [],
      public: answering,
      params,
      produces: ['application/vc'],
      response: z.string(),
      handle: (call) => answerStatus(answers, call as Call<z.output<typeof link>, undefined, undefined>),
    });
  return [
    passportRoute(
      '/01/:gtin/21/:serial',
      'passport_link.show',
      'The passport of one battery, by the link on its label (GS1 Digital Link)',
      battery,
    ),
    passportRoute('/01/:gtin', 'passport_link.model', 'The passport of a model', model),
    statusRoute('/01/:gtin/21/:serial/status', 'passport_link.status', battery),
    statusRoute('/01/:gtin/status', 'passport_link.model_status', model),
    route({
      method: 'GET',
      url: '/.well-known/did.json',
      action: 'passport_keys.did',
      summary: 'The keys that sign passports and credentials (did:web)',
      roles: [],
      public: {
        why: 'signatures are worth nothing without the public keys',
        tenantOf: async () => homeTenant,
      },
      produces: ['application/did+json'],
      response: z.string(),
      handle: async () =>
        new Reply('application/did+json', JSON.stringify(didDocument(means.origin, means.keys.publicKeys)), {
          headers: { 'cache-control': 'public, max-age=300' },
        }),
    }),
  ];
}

async function answerLink(answers: PassportAnswers, call: LinkCall): Promise<Reply> {
  const { headers, query: given, caller, scope } = call;
  const language = given.lang ?? languageFor(textOf(headers['accept-language']));
  const format = (given.format as Asked['format'] | undefined) ?? formatFor(textOf(headers.accept));
  if (format === undefined)
    return problem(406, 'NOT_ACCEPTABLE', `there are these forms: ${produces.join(', ')}`, call);
  const asked: Asked = {
    reader: readerOf(caller),
    format,
    language,
    label: given.label as Asked['label'],
  };
  const found = await findLink(answers, call);
  if (!found) return nothing(format, language, call);
  const tag = await answers.tag(scope, found, asked);
  const shared = headersOf(asked, found, tag);
  if (isKnown(textOf(headers['if-none-match']), tag))
    return new Reply(formats[format][0], null, { status: 304, headers: shared });
  const body = await answers.render(scope, found, asked, tag);
  if (body === undefined) return nothing(format, language, call);
  return new Reply(typeOf(format), body, { status: found.isCeased ? 410 : 200, headers: shared });
}

const textOf = (header: string | readonly string[] | undefined): string | undefined =>
  typeof header === 'object' ? header.join(', ') : header;

async function findLink(
  answers: PassportAnswers,
  { params, query: { version }, scope }: LinkCall,
): Promise<FoundPassport | undefined> {
  const item = itemOf(params);
  return (
    item &&
    answers.find(scope, { link: item }, version === undefined ? { current: true } : { versionId: version })
  );
}

const typeOf = (format: Asked['format']): string =>
  format === 'html' ? 'text/html; charset=utf-8' : formats[format][0];

/** A public answer may be kept for a minute: as long may a revocation take to reach every reader. */
function headersOf(
  { reader, format, language, label }: Asked,
  { passport }: FoundPassport,
  tag: string,
): Readonly<Record<string, string>> {
  const path = passport.serial === null ? '' : `/21/${encodeURIComponent(passport.serial)}`;
  const name = `passport-${fileName(passport.serial ?? passport.gtin)}`;
  const address = `/01/${passport.gtin}${path}`;
  return {
    etag: `"${tag}"`,
    vary: 'Accept, Accept-Language, Authorization',
    'cache-control': reader === 'public' ? 'public, max-age=60, must-revalidate' : 'private, no-store',
    'referrer-policy': 'no-referrer',
    link: formatNames
      .filter((each) => each !== format)
      .map(
        (each) =>
          `<${address}?format=${encodeURIComponent(each)}>; rel="alternate"; type="${formats[each][0]}"`,
      )
      .join(', '),
    ...(format === 'html' && {
      'content-security-policy': contentSecurityPolicy,
      'content-language': language,
      'x-frame-options': 'DENY',
    }),
    ...(format === 'pdf' && {
      'content-disposition': `inline; filename="${name}${label ? `-${label}` : ''}.pdf"`,
    }),
    ...(format === 'bundle' && { 'content-disposition': `attachment; filename="${name}.tar"` }),
  };
}

const fileName = (text: string): string => text.replace(/[^A-Za-z0-9._-]/g, '_').slice(0, 64);

const isKnown = (header: string | undefined, tag: string): boolean =>
  header !== undefined &&
  (header.trim() === '*' || header.split(',').some((each) => each.trim().replace(/^W\//, '') === `"${tag}"`));

/** As a page for people, as the usual error for programs. Says nothing about why. */
function nothing(format: Asked['format'], language: Language, call: LinkCall): Reply {
  if (format !== 'html')
    return problem(
      404,
      'NOT_FOUND',
      'there is no passport at this address, or none that is in force yet',
      call,
    );
  return new Reply('text/html; charset=utf-8', renderNotice('notFound', language), {
    status: 404,
    headers: {
      'content-security-policy': contentSecurityPolicy,
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      vary: 'Accept, Accept-Language',
    },
  });
}

const problem = (
  status: number,
  code: string,
  message: string,
  { correlationId }: Pick<LinkCall, 'correlationId'>,
): Reply =>
  new Reply('application/json', JSON.stringify({ error: { code, message, correlation_id: correlationId } }), {
    status,
    headers: { 'cache-control': 'no-store', vary: 'Accept, Accept-Language' },
  });

async function answerStatus(
  answers: PassportAnswers,
  call: Call<z.output<typeof link>, undefined, undefined>,
): Promise<Reply> {
  const item = itemOf(call.params);
  const found = item && (await answers.find(call.scope, { link: item }, { current: true }));
  const list = found && (await answers.statusList(call.scope, found.passport));
  if (!list) return problem(404, 'NOT_FOUND', 'there is no passport at this address', call);
  return new Reply('application/vc', JSON.stringify(list), {
    headers: { 'cache-control': 'public, max-age=60, must-revalidate' },
  });
}
