import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import { AimsToken } from './aims-token.ts';
import type { LabelGateway, LabelPush, LabelReport, LabelState } from './gateway.ts';
import { type Answer, type Call, type GatewayGuard, GatewayHttp, refusal } from './http.ts';
import { ReportBudget, type ReportLimits } from './report-limits.ts';
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
/** Of an answer about one label, or to an image. */
const shortAnswer = 256 * 1024;
/** More is no state of a battery, and no hash of an image. */
const longestBattery = 64;
const longestHash = 128;
const mostHashes = 16;
const connections = 64;

/** SoluM AIMS, over its HTTP API, version 2. */
export class AimsGateway implements LabelGateway {
  readonly #http: GatewayHttp;
  readonly #token: AimsToken;
  readonly #store: string;
  readonly #limits: Partial<ReportLimits> | undefined;

  constructor(
    { url, timeoutMs, company, store, username, password }: AimsSettings,
    guard: GatewayGuard = {},
  ) {
    this.#http = new GatewayHttp(url, { ...guard, timeoutMs, connections });
    this.#token = new AimsToken(this.#http, { username, password });
    this.#limits = guard.report;
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
      maxBytes: shortAnswer,
    } as const;
    this.#accepted(await this.#call(call));
  }

  async report(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelReport[]> {
    const wanted = new Set(macs);
    const budget = new ReportBudget('AIMS', this.#limits);
    const found = await budget.run(signal, (limited) =>
      macs.length <= oneByOne ? this.#each(wanted, budget, limited) : this.#all(wanted, budget, limited),
    );
    return macs.map((mac) => found.get(mac) ?? { mac, state: 'unknown' });
  }

  async #each(
    wanted: ReadonlySet<string>,
    budget: ReportBudget,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, LabelReport>> {
    const found = new Map<string, LabelReport>();
    await Promise.all(
      [...wanted].map(async (label) => {
        const rows = await this.#rows(new URLSearchParams({ label }), budget, signal, shortAnswer);
        keepWanted(rows, wanted, found);
      }),
    );
    return found;
  }

  /** Keeps what is wanted and the codes of one page: the list may be longer than the memory. */
  async #all(
    wanted: ReadonlySet<string>,
    budget: ReportBudget,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, LabelReport>> {
    const found = new Map<string, LabelReport>();
    let before: ReadonlySet<string> = new Set();
    // An installation may give fewer labels a page than it was asked for: a page ends the list if it is shorter than the first.
    let fullPage = 1;
    for (let page = 0; found.size < wanted.size; page += 1) {
      const query = { page: `${page}`, size: `${pageSize}`, sort: 'labelCode,asc' };
      const rows = await this.#rows(new URLSearchParams(query), budget, signal);
      keepWanted(rows, wanted, found);
      const hasFresh = rows.some(({ labelCode }) => !before.has(labelCode));
      fullPage = Math.max(fullPage, rows.length);
      // Nothing new: the list is over, or this AIMS gives the same page whichever is asked for.
      if (!hasFresh || rows.length < fullPage) break;
      before = new Set(rows.map(({ labelCode }) => labelCode));
    }
    return found;
  }

  async #rows(
    query: URLSearchParams,
    budget: ReportBudget,
    signal: AbortSignal,
    maxBytes?: number,
  ): Promise<readonly LabelRow[]> {
    const answer = await this.#call({
      method: 'GET',
      path: `/api/v2/common/labels?${this.#store}&${query}`,
      signal,
      ...(maxBytes !== undefined && { maxBytes }),
    });
    const bytes = answer.body.length;
    if (answer.status === 204 || answer.body.trim() === '') return [];
    const json = this.#accepted(answer);
    const list = labelList.safeParse(json);
    if (!list.success)
      throw new TallymanError('GATEWAY_ANSWER', 'AIMS answered with something else than a list of labels');
    budget.take({ rows: list.data.length, bytes });
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

/** A report has what is used of a row and no more: the rest of a row may be megabytes. */
function keepWanted(
  rows: readonly LabelRow[],
  wanted: ReadonlySet<string>,
  found: Map<string, LabelReport>,
): void {
  for (const row of rows) {
    const mac = row.labelCode.toUpperCase();
    if (wanted.has(mac)) found.set(mac, reportOf(mac, row));
  }
}

function reportOf(mac: string, row: LabelRow): LabelReport {
  const seen = timeOf(row.lastResponsetime ?? row.lastResponseTime ?? '');
  const battery = String(row.battery ?? '');
  return {
    mac,
    state: states[(row.updateStatus ?? row.status ?? '').toUpperCase()] ?? 'unknown',
    ...(row.imageHashes && { hashes: hashesOf(row.imageHashes) }),
    ...(battery !== '' && battery.length <= longestBattery && { battery }),
    ...(!Number.isNaN(seen) && { seenAt: new Date(seen) }),
  };
}

const hashesOf = (hashes: Readonly<Record<string, string>>): ReadonlyMap<number, string> =>
  new Map(
    Object.entries(hashes)
      .slice(0, mostHashes)
      .flatMap(([page, hash]) => (hash.length <= longestHash ? [[Number(page), hash] as const] : [])),
  );

/** AIMS writes `2021-05-18 14:34:05.631107`, in UTC; without a zone it would be read in that of this machine. */
function timeOf(text: string): number {
  const plain = /^(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,3})?)\d*$/.exec(text);
  return Date.parse(plain ? `${plain[1]}T${plain[2]}Z` : text);
}
