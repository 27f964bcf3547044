import { TallymanError } from '../../../engine/errors.ts';
import { type RouteHost, settingsOf } from '../../../host/app.ts';
import type { AnyRoute, Call } from '../../../host/route.ts';
import { passportsKeys } from '../config.ts';
import { withCodes } from '../jobs/run.ts';
import { type Means, meansOf } from '../means.ts';
import { PassportAnswers } from '../public/answers.ts';
import { ringFor } from '../signing/ring.ts';
import { type Work, workIn } from '../work.ts';
import { documentRoutes } from './documents.ts';
import { dppRoutes } from './dpp.ts';
import { exportRoutes } from './exports.ts';
import { passportNounRoutes } from './passports.ts';
import { productRoutes } from './products.ts';
import { publicRoutes } from './public.ts';
import { ruleRoutes } from './rules.ts';
import { snapshotRoutes } from './snapshots.ts';
import { versionRoutes } from './versions.ts';

/** What the routes of this app have besides the request. */
export interface RouteTools {
  readonly host: RouteHost;
  readonly means: Means;
  readonly answers: PassportAnswers;
  /** The transaction of a request, which can also enqueue. */
  work(call: Pick<Call<unknown, unknown, unknown>, 'scope'>): Work;
}

/** Each file of this folder has some routes. Add yours here. */
const parts: readonly ((tools: RouteTools) => readonly AnyRoute[])[] = [
  productRoutes,
  documentRoutes,
  snapshotRoutes,
  ruleRoutes,
  passportNounRoutes,
  versionRoutes,
  exportRoutes,
  publicRoutes,
  dppRoutes,
];

export function passportRoutes(host: RouteHost): readonly AnyRoute[] {
  const config = settingsOf(passportsKeys, host.config);
  const means = meansOf(config, { keys: ringFor(config, host.secrets) });
  const tools: RouteTools = {
    host,
    means,
    answers: new PassportAnswers(means),
    work: ({ scope }) => workIn(host.tallyman, scope, means.fresh),
  };
  return parts.flatMap((part) => part(tools)).map(coded);
}

/**
 * Errors of the compiler and of the guards in the database reach the caller as codes of BPC-13. What is not valid is named:
 * the body, or what the address names.
 */
const coded = (route: AnyRoute): AnyRoute => {
  const { handle } = route;
  if (handle === undefined) return route;
  const part = route.body || route.upload ? 'body' : 'params';
  return {
    ...route,
    handle: (call) =>
      withCodes(() => handle(call)).catch((error: unknown) => {
        throw named(part, error);
      }),
  };
};

function named(part: string, error: unknown): unknown {
  if (!(error instanceof TallymanError) || error.code !== 'VALIDATION_ERROR') return error;
  if (/^(body|query|params|headers)\b/.test(error.message)) return error;
  return new TallymanError(error.code, `${part}: ${error.message}`, {
    cause: error,
    ...(error.details && { details: { ...error.details } }),
  });
}
