import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import { AimsToken } from './aims-token.ts';
import type { LabelGateway, LabelPush, LabelReport, LabelState } from './gateway.ts';
import { type Answer, type Call, type GatewayGuard, GatewayHttp, refusal } from './http.ts';
import type { AimsSettings } from './settings.ts';

const states: Readonly<Record<string, LabelState>> = {
  SUCCESS: 'shown',
  PROCESSING: 'processing',
  TIMEOUT: 'timeout',
};

const labelRow = z.object({
  labelCode: z.string(),
  /** As the public API document spells them; some installations answer with the second of each pair. */
  updateStatus: z.string().nullish(),
  status: z.string().nullish(),
  lastResponsetime: z.string().nullish(),
  lastResponseTime: z.string().nullish(),
  battery: z.union([z.string(), z.number()]).nullish(),
  /** Not part of AIMS: our simulator reports the hash of what it shows. */
  imageHashes: z.record(z.string(), z.string()).nullish(),
});
type LabelRow = z.infer<typeof labelRow>;
const labelRows = z.array(labelRow);
const labelList = z.union([
  labelRows,
  z.object({ labelList: labelRows }).transform((answer) => answer.labelList),
  z.object({ content: labelRows }).transform((answer) => answer.content),
]);

/** Up to this many labels are asked for one by one; beyond that the store's list is read. */
const oneByOne = 10;
const pageSize = 500;
/** Enough for half a million labels; a longer list is taken for one that never ends. */
const maxPages = 1000;
const connections = 64;

/** SoluM AIMS, over its HTTP API, version 2. */
export class AimsGateway implements LabelGateway {
  readonly #http: GatewayHttp;
  readonly #token: AimsToken;
  readonly #store: string;

  constructor(
    { url, timeoutMs, company, store, username, password }: AimsSettings,
    guard: GatewayGuard = {},
  ) {
    this.#http = new GatewayHttp(url, { ...guard, timeoutMs, connections });
    this.#token = new AimsToken(this.#http, { username, password });
    this.#store = new URLSearchParams({ company, store }).toString();
  }

  async push({ mac, page, image }: LabelPush, signal: AbortSignal): Promise<void> {
    const body = JSON.stringify({
      labelCode: mac,
      page,
      // Turns the label to this page, so that the pushed image is visible.
      frontPage: page,
      image: image.png.toString('base64'),
      dithering: false,
    });
    const call = {
      method: 'POST',
      path: `/api/v2/common/labels/image?${this.#store}`,
      body,
      signal,
    } as const;
    this.#accepted(await this.#call(call));
  }

  async report(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelReport[]> {
    const rows =
      macs.length <= oneByOne ? await this.#each(macs, signal) : await this.#all(new Set(macs), signal);
    const byMac = new Map(rows.map((row) => [row.labelCode.toUpperCase(), row]));
    return macs.map((mac) => reportOf(mac, byMac.get(mac)));
  }

  async #each(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelRow[]> {
    const found = await Promise.all(macs.map((label) => this.#rows(new URLSearchParams({ label }), signal)));
    return found.flat();
  }

  async #all(wanted: ReadonlySet<string>, signal: AbortSignal): Promise<readonly LabelRow[]> {
    const rows = new Map<string, LabelRow>();
    const seen = new Set<string>();
    // An installation may give fewer labels a page than it was asked for: a page ends the list if it is shorter than the first.
    let fullPage = 1;
    for (let page = 0; page < maxPages && rows.size < wanted.size; page += 1) {
      const query = { page: `${page}`, size: `${pageSize}`, sort: 'labelCode,asc' };
      const found = await this.#rows(new URLSearchParams(query), signal);
      const fresh = found.filter(({ labelCode }) => !seen.has(labelCode));
      for (const row of fresh) {
        seen.add(row.labelCode);
        const mac = row.labelCode.toUpperCase();
        if (wanted.has(mac)) rows.set(mac, row);
      }
      fullPage = Math.max(fullPage, found.length);
      // Nothing new: the list is over, or this AIMS gives the same page whichever is asked for.
      if (fresh.length === 0 || found.length < fullPage) break;
    }
    return [...rows.values()];
  }

  async #rows(query: URLSearchParams, signal: AbortSignal): Promise<readonly LabelRow[]> {
    const answer = await this.#call({
      method: 'GET',
      path: `/api/v2/common/labels?${this.#store}&${query}`,
      signal,
    });
    if (answer.status === 204 || answer.body.trim() === '') return [];
    const json = this.#accepted(answer);
    const list = labelList.safeParse(json);
    if (!list.success)
      throw new TallymanError('GATEWAY_ANSWER', 'AIMS answered with something else than a list of labels');
    return list.data;
  }

  /** One call with the token; a token that is refused is replaced once. */
  async #call(call: Call): Promise<Answer> {
    const token = await this.#token.get(call.signal);
    const answer = await this.#authorised(call, token);
    if (answer.status !== 401) return answer;
    const fresh = await this.#token.get(call.signal, token);
    return this.#authorised(call, fresh);
  }

  #authorised(call: Call, token: string): Promise<Answer> {
    const json = call.body === undefined ? {} : { 'content-type': 'application/json' };
    return this.#http.call({ ...call, headers: { ...json, authorization: `Bearer ${token}` } });
  }

  /** The JSON of a good answer. AIMS may answer 200 for a failure: its own code in the body decides. */
  #accepted({ status, body, retryAfterMs }: Answer): unknown {
    const json = parsed(body);
    const own = Number((json as { responseCode?: unknown } | undefined)?.responseCode);
    const meant = status < 300 && own >= 300 && own < 600 ? own : status;
    if (meant < 200 || meant >= 300) throw refusal('AIMS', meant, said(json), retryAfterMs);
    if (json === undefined)
      throw new TallymanError('GATEWAY_ANSWER', 'AIMS answered with something else than JSON');
    return json;
  }

  close(): Promise<void> {
    return this.#http.close();
  }
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function said(json: unknown): string {
  const message = (json as { responseMessage?: unknown } | undefined)?.responseMessage;
  return typeof message === 'string' ? message : '';
}

function reportOf(mac: string, row: LabelRow | undefined): LabelReport {
  if (!row) return { mac, state: 'unknown' };
  const seen = timeOf(row.lastResponsetime ?? row.lastResponseTime ?? '');
  return {
    mac,
    state: states[(row.updateStatus ?? row.status ?? '').toUpperCase()] ?? 'unknown',
    ...(row.imageHashes && {
      hashes: new Map(Object.entries(row.imageHashes).map(([page, hash]) => [Number(page), hash])),
    }),
    ...(row.battery != null && { battery: String(row.battery) }),
    ...(!Number.isNaN(seen) && { seenAt: new Date(seen) }),
  };
}

/** AIMS writes `2021-05-18 14:34:05.631107`, in UTC; without a zone it would be read in that of this machine. */
function timeOf(text: string): number {
  const plain = /^(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,3})?)\d*$/.exec(text);
  return Date.parse(plain ? `${plain[1]}T${plain[2]}Z` : text);
}
