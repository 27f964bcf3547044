import type { Queryable } from '../../../engine/database/database.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { productionSign } from '../../../host/process/production.ts';
import type { SecretBox } from '../../../secrets/box.ts';
import { sha256Hex } from '../compile/hash.ts';
import type { PassportsConfig } from '../config.ts';
import { type KeyRing, keyRing } from './keys.ts';

/**
 * The configured keys (BPC-9). Without a signing key, and not in production, one is derived from the master secret, so that
 * the sample runs from nothing: the same key in every process and after every start, and its id says what it is. In
 * production nothing is signed without a configured key.
 */
export function ringFor(config: PassportsConfig, secrets: SecretBox): KeyRing {
  if (!needsDevelopmentKey(config)) return keyRing(config);
  const seed = secrets.derive('passports-development-signing');
  return keyRing({
    ...config,
    'passports.signingKey': seed.toString('base64'),
    'passports.signingKeyId': `development-${sha256Hex(seed).slice(0, 8)}`,
  });
}

/**
 * In production the app does not start without a configured key (BPC-9), once there is a product whose passports it would have
 * to sign: an installation that has none is not held up by what it does not use.
 */
export async function requireProductionKey(keys: KeyRing, database: Queryable): Promise<void> {
  const sign = productionSign(process.env);
  if (sign === undefined || keys.currentId !== undefined) return;
  const { rows } = await database.query('select 1 from passports.products limit 1');
  if (rows.length === 0) return;
  throw new TallymanError(
    'SIGNING_KEY_MISSING',
    `this is production (${sign}), there are battery passports, and there is no key to sign them: set ` +
      'BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64 and BPC_SIGNING_KEY_ID, or leave the part "passports" out (server.parts)',
  );
}

/** For commands: the master secret is only asked for where it is needed. */
export const ringWith = async (
  config: PassportsConfig,
  secrets: () => Promise<SecretBox>,
): Promise<KeyRing> => (needsDevelopmentKey(config) ? ringFor(config, await secrets()) : keyRing(config));

const needsDevelopmentKey = (config: PassportsConfig): boolean =>
  config['passports.signingKey'] === null &&
  config['passports.signingKeyId'] === null &&
  productionSign(process.env) === undefined;
