import { createHash } from 'node:crypto';
import { version as programVersion } from '../../../engine/version.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { type JsonObject, type Reader, readerPoints } from '../compile/types.ts';
import { dppDocument, type Representation } from '../dpp/document.ts';
import { type WithheldElements, withheldElements } from '../dpp/withheld.ts';
import { type CredentialSigner, withDataIntegrity } from '../export/credential.ts';
import { statusListOf } from '../export/status-list.ts';
import type { Means } from '../means.ts';
import { type Disclosed, disclose, labelLink } from '../page/disclosure.ts';
import { requireCurrentKey } from '../signing/keys.ts';
import { itemEventsOf } from '../store/item-events.ts';
import { predecessorsOf, type StoredPassport } from '../store/passports.ts';
import type { PassportVersion } from '../store/versions.ts';
import { makeBundle } from './bundle.ts';
import { AnswerCache } from './cache.ts';
import { findNamed, publishedVersion, versionEnds, type Wanted } from './find.ts';
import { type FormOptions, makeForm } from './forms.ts';
import type { PassportName } from './link.ts';
import { type LoadedPassport, loadPassport, type PublicMeans } from './load.ts';
import type { Format } from './negotiate.ts';

/** Which form of a passport, for whom. */
export interface Asked extends FormOptions {
  readonly reader: Reader;
  readonly format: Format;
}

/** Which document of EN 18223, for whom. `elements`: the compressed one, and which of its elements are withheld. */
export interface AskedDocument {
  readonly reader: Reader;
  readonly representation: Representation | 'elements';
}

export interface DppElements {
  readonly document: JsonObject;
  readonly withheld: WithheldElements;
}

/** A passport that was found, before it is loaded; `tag` changes with everything that an answer depends on. */
export interface FoundPassport {
  readonly passport: StoredPassport;
  readonly version: PassportVersion;
  readonly isCeased: boolean;
}

/** Finds passports, and makes every form of them. One for each process: it keeps what it has rendered. */
export class PassportAnswers {
  readonly #means: Means;
  readonly #public: PublicMeans;
  readonly #cache = new AnswerCache();

  constructor(means: Means) {
    this.#means = means;
    this.#public = { publicKeys: means.keys.publicKeys, origin: means.origin };
  }

  /** Undefined if there is none, or none that was ever published. */
  async find(on: TenantQueries, name: PassportName, wanted: Wanted): Promise<FoundPassport | undefined> {
    const passport = await findNamed(on, name);
    const version = passport && (await publishedVersion(on, passport.id, wanted));
    return version && { passport, version, isCeased: Boolean(passport.item?.ceasedAt) };
  }

  /** The document of EN 18223 as JSON text, of what the reader may see. Undefined if the version cannot be loaded. */
  async document(
    on: TenantQueries,
    found: FoundPassport,
    { reader, representation }: AskedDocument,
  ): Promise<string | undefined> {
    // What is not public is not kept longer than the request.
    const tag = reader === 'public' ? await this.tag(on, found, { reader, representation }) : undefined;
    const known = tag === undefined ? undefined : this.#cache.get(tag);
    if (typeof known === 'string') return known;
    const loaded = await loadPassport(on, found, reader, this.#public);
    if (!loaded) return undefined;
    const answer = JSON.stringify(documentOf(disclose(loaded.source, reader), representation));
    if (tag !== undefined) this.#cache.put(tag, answer);
    return answer;
  }

  /** What single elements are read from. */
  async elements(on: TenantQueries, found: FoundPassport, reader: Reader): Promise<DppElements | undefined> {
    const text = await this.document(on, found, { reader, representation: 'elements' });
    return text === undefined ? undefined : (JSON.parse(text) as DppElements);
  }

  /** With everything that it was made from: for exports by who issued it. */
  load(on: TenantQueries, found: FoundPassport, reader: Reader): Promise<LoadedPassport | undefined> {
    return loadPassport(on, found, reader, this.#public);
  }

  /** An ETag without quotes: the same tag, the same bytes. */
  async tag(
    on: TenantQueries,
    { passport, version }: FoundPassport,
    asked: Asked | AskedDocument,
  ): Promise<string> {
    const predecessors = await predecessorsOf(on, passport.id);
    // For readers of point 4 alone: a tag that changes tells that there is new individual data.
    const seesEvents = readerPoints[asked.reader].includes(4);
    const [last] = seesEvents ? await itemEventsOf(on, passport.id, { limit: 1 }) : [];
    const parts = [
      version.id,
      version.state,
      version.endedAt,
      passport.item?.ceasedAt ?? null,
      last?.hash ?? null,
      predecessors.map(({ passportId }) => passportId),
      Object.keys(this.#public.publicKeys),
      this.#means.keys.currentId ?? null,
      this.#public.origin,
      programVersion(),
      asked,
    ];
    return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 22);
  }

  /** Undefined if the version cannot be loaded. Throws PASSPORT_NOT_ACTIVE for credentials of one that has ended. */
  async render(
    on: TenantQueries,
    found: FoundPassport,
    asked: Asked,
    tag: string,
  ): Promise<string | Uint8Array | undefined> {
    const known = this.#cache.get(tag);
    if (known !== undefined) return known;
    const loaded = await loadPassport(on, found, asked.reader, this.#public);
    if (!loaded) return undefined;
    const disclosed = disclose(loaded.source, asked.reader);
    const answer =
      asked.format === 'bundle'
        ? await makeBundle(on, loaded, disclosed, this.signer())
        : await makeForm(disclosed, asked.format, asked, () => this.signer());
    // What is not public is not kept longer than the request.
    if (asked.reader === 'public') this.#cache.put(tag, answer);
    return answer;
  }

  /** The status list of a passport, signed: which of its versions have ended. */
  async statusList(
    on: TenantQueries,
    { id, gtin, serial, item }: StoredPassport,
  ): Promise<JsonObject | undefined> {
    const ends = await versionEnds(on, id);
    if (!ends) return undefined;
    const ceasedAt = item?.ceasedAt ?? null;
    const { origin } = this.#public;
    return withDataIntegrity(
      statusListOf({
        origin,
        labelLink: labelLink(origin, gtin, serial),
        ended: ceasedAt === null ? ends.ended : ends.all,
        changedAt: (ceasedAt ?? ends.changedAt).toISOString(),
      }),
      this.signer(),
    );
  }

  /** Throws SIGNING_KEY_MISSING where this process has no private key. */
  signer(): CredentialSigner {
    const { keys } = this.#means;
    const keyId = requireCurrentKey(keys);
    return { keyId, sign: (bytes) => keys.sign(keyId, bytes) };
  }
}

const documentOf = (
  disclosed: Disclosed,
  representation: AskedDocument['representation'],
): JsonObject | DppElements =>
  representation === 'elements'
    ? { document: dppDocument(disclosed, 'compressed'), withheld: withheldElements(disclosed) }
    : dppDocument(disclosed, representation);
