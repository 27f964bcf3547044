import { z } from 'zod';
import { PermanentError, TallymanError } from '../../../engine/errors.ts';
import { decodePng } from '../render/png.ts';
import type { LabelGateway, LabelPush, LabelReport } from './gateway.ts';
import { type GatewayGuard, GatewayHttp, refusal } from './http.ts';
import { encodeJpeg } from './jpeg.ts';
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
const maxPages = 1000;
const oneByOne = 5;
/** A tag with a waiting image that is this long overdue is considered lost. */
const overdueSeconds = 600;

/** An access point with OpenEPaperLink's firmware. It has no pages and no credentials. */
export class OpenEPaperLinkGateway implements LabelGateway {
  readonly #http: GatewayHttp;

  constructor({ url, timeoutMs }: OpenEPaperLinkSettings, guard: GatewayGuard = {}) {
    this.#http = new GatewayHttp(url, { ...guard, timeoutMs, connections });
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
    const rows = macs.length <= oneByOne ? await this.#each(macs, signal) : await this.#all(signal);
    const byMac = new Map(rows.map((row) => [normalised(row.mac), row]));
    return macs.map((mac) => reportOf(mac, byMac.get(mac), Date.now() / 1000));
  }

  async #each(macs: readonly string[], signal: AbortSignal): Promise<readonly TagRow[]> {
    const found: TagRow[] = [];
    for (const mac of macs) found.push(...(await this.#page(`mac=${mac}`, signal)).tags);
    return found;
  }

  async #all(signal: AbortSignal): Promise<readonly TagRow[]> {
    const rows: TagRow[] = [];
    let position: number | null | undefined = 0;
    for (let page = 0; page < maxPages && position != null; page += 1) {
      const { tags, continu }: z.infer<typeof tagPage> = await this.#page(`pos=${position}`, signal);
      rows.push(...tags);
      // Stop if the position does not advance: the loop would never end.
      position = continu != null && continu > position ? continu : undefined;
    }
    return rows;
  }

  async #page(query: string, signal: AbortSignal): Promise<z.infer<typeof tagPage>> {
    const answer = await this.#http.call({ method: 'GET', path: `/get_db?${query}`, signal, maxBytes });
    if (answer.status !== 200)
      throw refusal('OpenEPaperLink', answer.status, answer.body, answer.retryAfterMs);
    try {
      return tagPage.parse(JSON.parse(answer.body));
    } catch (error) {
      throw new TallymanError(
        'GATEWAY_ANSWER',
        'OpenEPaperLink answered with something else than its list of tags',
        { cause: error },
      );
    }
  }

  close(): Promise<void> {
    return this.#http.close();
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
