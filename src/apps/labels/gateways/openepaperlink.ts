import { z } from 'zod';
import { PermanentError, TallymanError } from '../../../engine/errors.ts';
import { decodePng } from '../render/png.ts';
import type { LabelGateway, LabelPush, LabelReport } from './gateway.ts';
import { type GatewayGuard, GatewayHttp, refusal } from './http.ts';
import { encodeJpeg } from './jpeg.ts';
import { ReportBudget, type ReportLimits } from './report-limits.ts';
import type { OpenEPaperLinkSettings } from './settings.ts';

const tagRow = z.object({
  mac: z.string(),
  /** Seconds of Unix time. */
  lastseen: z.number().nullish(),
  nextupdate: z.number().nullish(),
  nextcheckin: z.number().nullish(),
  /** Transfers that the tag has not fetched. */
  pending: z.number().nullish(),
  batteryMv: z.number().nullish(),
});
type TagRow = z.infer<typeof tagRow>;
const tagPage = z.object({ tags: z.array(tagRow), continu: z.number().nullish() });

/** The access point is a small computer with little memory: one request at a time. */
const connections = 1;
const maxBytes = 1024 * 1024;
const oneByOne = 5;
/** A tag with a waiting image that is this long overdue is considered lost. */
const overdueSeconds = 600;

/** An access point with OpenEPaperLink's firmware. It has no pages and no credentials. */
export class OpenEPaperLinkGateway implements LabelGateway {
  readonly #http: GatewayHttp;
  readonly #limits: Partial<ReportLimits> | undefined;

  constructor({ url, timeoutMs }: OpenEPaperLinkSettings, guard: GatewayGuard = {}) {
    this.#http = new GatewayHttp(url, { ...guard, timeoutMs, connections });
    this.#limits = guard.report;
  }

  async push({ mac, page, image }: LabelPush, signal: AbortSignal): Promise<void> {
    if (page !== 1)
      throw new PermanentError(
        'GATEWAY_REFUSED',
        `OpenEPaperLink has no pages; label ${mac} was to get page ${page}`,
      );
    const { pixels, panel } = decodePng(image.png);
    const { body, contentType } = formData(
      { mac, dither: '0' },
      { name: 'file', filename: 'label.jpg', type: 'image/jpeg', content: encodeJpeg(pixels, panel) },
    );
    const answer = await this.#http.call({
      method: 'POST',
      path: '/imgupload',
      headers: { 'content-type': contentType },
      body,
      signal,
      maxBytes,
    });
    if (answer.status !== 200)
      throw refusal('OpenEPaperLink', answer.status, answer.body, answer.retryAfterMs);
    if (!/^ok/i.test(answer.body.trim()))
      throw new TallymanError('GATEWAY_ANSWER', 'OpenEPaperLink answered with something else than OK');
  }

  async report(macs: readonly string[], signal: AbortSignal): Promise<readonly LabelReport[]> {
    const wanted = new Set(macs);
    const budget = new ReportBudget('OpenEPaperLink', this.#limits);
    const found = new Map<string, TagRow>();
    const keep = (rows: readonly TagRow[]): void => {
      for (const { mac, ...row } of rows) {
        const known = normalised(mac);
        if (wanted.has(known)) found.set(known, { mac: known, ...row });
      }
    };
    await budget.run(signal, (limited) =>
      macs.length <= oneByOne ? this.#each(macs, keep, budget, limited) : this.#all(keep, budget, limited),
    );
    return macs.map((mac) => reportOf(mac, found.get(mac), Date.now() / 1000));
  }

  async #each(macs: readonly string[], keep: Keep, budget: ReportBudget, signal: AbortSignal): Promise<void> {
    for (const mac of macs) keep((await this.#page(`mac=${mac}`, budget, signal)).tags);
  }

  async #all(keep: Keep, budget: ReportBudget, signal: AbortSignal): Promise<void> {
    let position: number | null | undefined = 0;
    while (position != null) {
      const { tags, continu }: z.infer<typeof tagPage> = await this.#page(`pos=${position}`, budget, signal);
      keep(tags);
      // Stop if the position does not advance: the loop would never end.
      position = continu != null && continu > position ? continu : undefined;
    }
  }

  async #page(query: string, budget: ReportBudget, signal: AbortSignal): Promise<z.infer<typeof tagPage>> {
    const answer = await this.#http.call({ method: 'GET', path: `/get_db?${query}`, signal, maxBytes });
    if (answer.status !== 200)
      throw refusal('OpenEPaperLink', answer.status, answer.body, answer.retryAfterMs);
    const page = pageIn(answer.body);
    budget.take({ rows: page.tags.length, bytes: answer.body.length });
    return page;
  }

  close(): Promise<void> {
    return this.#http.close();
  }
}

type Keep = (rows: readonly TagRow[]) => void;

function pageIn(body: string): z.infer<typeof tagPage> {
  try {
    return tagPage.parse(JSON.parse(body));
  } catch (error) {
    throw new TallymanError(
      'GATEWAY_ANSWER',
      'OpenEPaperLink answered with something else than its list of tags',
      { cause: error },
    );
  }
}

/** Sixteen digits there, twelve here: the first four are zeros. */
const normalised = (mac: string): string => mac.toUpperCase().replace(/^0000(?=[0-9A-F]{12}$)/, '');

function reportOf(mac: string, row: TagRow | undefined, now: number): LabelReport {
  if (!row) return { mac, state: 'unknown' };
  // 0: uploaded, and not yet made ready for the tag. After that `pending` counts.
  const waiting = (row.pending ?? 0) > 0 || row.nextupdate === 0;
  const overdue = row.nextcheckin != null && row.nextcheckin > 3600 && now - row.nextcheckin > overdueSeconds;
  return {
    mac,
    state: !waiting ? 'shown' : overdue ? 'timeout' : 'processing',
    ...(row.batteryMv != null && row.batteryMv > 0 && { battery: `${row.batteryMv} mV` }),
    ...(row.lastseen != null && row.lastseen > 0 && { seenAt: new Date(row.lastseen * 1000) }),
  };
}

interface FormFile {
  readonly name: string;
  readonly filename: string;
  readonly type: string;
  readonly content: Buffer;
}

/** The file comes last: the access point reads `mac` when the file begins. */
function formData(
  fields: Readonly<Record<string, string>>,
  file: FormFile,
): { body: Buffer; contentType: string } {
  const boundary = 'tallyman-label-7f3a9c51e2';
  const parts = Object.entries(fields).map(
    ([name, value]) => `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  const opening = `--${boundary}\r\nContent-Disposition: form-data; name="${file.name}"; filename="${file.filename}"\r\nContent-Type: ${file.type}\r\n\r\n`;
  return {
    body: Buffer.concat([
      Buffer.from(parts.join('') + opening),
      file.content,
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]),
    contentType: `multipart/form-data; boundary=${boundary}`,
  };
}
