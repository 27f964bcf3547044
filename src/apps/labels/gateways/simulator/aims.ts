import { randomBytes, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { hashOf } from '../../render/pixels.ts';
import { decodePng } from '../../render/png.ts';
import { json, Refused, type Reply } from './exchange.ts';
import { type SimulatedLabel, type SimulatedLabels, shownOn, statusOf } from './labels.ts';
import type { SimulatorSettings } from './settings.ts';

/** Answers have the fields and spellings of SoluM's public API document (`aims-saas-api-full.yaml`). */
const refused = (status: number, message: string): Refused =>
  new Refused(json({ responseCode: `${status}`, responseMessage: message }, status));

/** Tokens as AIMS gives them out, each with its end. */
export class Tokens {
  readonly #until = new Map<string, number>();
  #given = 0;

  get given(): number {
    return this.#given;
  }

  /** Every token is void at once, as after a restart of the gateway. */
  revoke(): void {
    this.#until.clear();
  }

  give(body: Buffer, settings: SimulatorSettings): Reply {
    const { username, password } = credentials.safeParse(parsed(body)).data ?? {};
    if (username === undefined || password === undefined)
      throw refused(405, 'username and password are missing');
    const wrong =
      (settings.username !== undefined && settings.username !== username) ||
      (settings.password !== undefined && settings.password !== password);
    if (wrong) throw refused(401, 'wrong user name or password');
    const token = randomBytes(24).toString('base64url');
    this.#given += 1;
    this.#until.set(token, Date.now() + settings.tokenSeconds * 1000);
    return json({
      responseCode: '200',
      responseMessage: {
        access_token: token,
        token_type: 'Bearer',
        expires_in: settings.tokenSeconds,
        refresh_token: randomBytes(24).toString('base64url'),
      },
    });
  }

  check(authorization: string | undefined): void {
    const until = this.#until.get(authorization?.replace(/^Bearer /, '') ?? '') ?? 0;
    if (Date.now() >= until) throw refused(401, 'Unauthorized');
  }
}

const credentials = z.object({ username: z.string(), password: z.string() });
const imagePush = z.object({
  labelCode: z.string().regex(/^[0-9A-F]{12}$/),
  page: z.number().int().min(1).max(7),
  image: z.base64(),
});

export interface ReadPush {
  readonly mac: string;
  readonly page: number;
  readonly hash: string | null;
  readonly type: string;
  readonly content: Buffer;
}

export function readPush(query: URLSearchParams, body: Buffer): ReadPush {
  checkStore(query);
  const push = imagePush.safeParse(parsed(body));
  if (!push.success) throw refused(405, `Parameter is invalid: ${z.prettifyError(push.error)}`);
  const { labelCode: mac, page, image } = push.data;
  const content = Buffer.from(image, 'base64');
  try {
    const { pixels, panel } = decodePng(content);
    return { mac, page, content, type: 'image/png', hash: hashOf(pixels, panel) };
  } catch {
    throw refused(405, 'Parameter is invalid: image is not a PNG of a label');
  }
}

export const pushAccepted = (): Reply =>
  json({ customBatchId: randomUUID(), responseCode: '200', responseMessage: 'SUCCESS' });
export const pushRefused = (mac: string): Refused => refused(405, `label ${mac} is not known`);

/** The document speaks of 10, 20, … 500 rows a page. */
const mostRows = 500;

export function listLabels(labels: SimulatedLabels, query: URLSearchParams): Reply {
  checkStore(query);
  const wanted = query.get('label');
  const page = Number(query.get('page') ?? 0);
  const size = Math.min(Number(query.get('size') ?? 10), mostRows);
  const all = wanted === null ? labels.byMac() : [labels.get(wanted)].filter((label) => label !== undefined);
  const rows = all.slice(page * size, (page + 1) * size);
  if (rows.length === 0) return { status: 204, body: '' };
  return json({
    responseCode: '200',
    responseMessage: 'SUCCESS',
    labelList: rows.map((label) => row(label, Date.now())),
  });
}

function row(label: SimulatedLabel, now: number): object {
  const shown = [...shownOn(label, now)].flatMap(([page, { hash }]) =>
    hash === null ? [] : [[`${page}`, hash]],
  );
  return {
    labelCode: label.mac,
    updateStatus: statusOf(label, now),
    articleList: [],
    // In UTC, without saying so.
    lastResponsetime: `${new Date(now).toISOString().slice(0, -1).replace('T', ' ')}000`,
    battery: 'GOOD',
    batteryLevel: 'FF',
    signal: 'EXCELLENT',
    networkStatus: true,
    imageHashes: Object.fromEntries(shown),
  };
}

function checkStore(query: URLSearchParams): void {
  if (!query.get('company')) throw refused(403, 'License Error');
  if (!query.get('store')) throw refused(405, 'Parameter is invalid: store');
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}
