import type { Palette } from '../../render/panel.ts';
import { hashOf, toPalette } from '../../render/pixels.ts';
import { rasterizer } from '../../render/rasterizer.ts';
import type { ReadPush } from './aims.ts';
import { json, Refused, type Reply, text } from './exchange.ts';
import { type SimulatedLabel, type SimulatedLabels, statusOf } from './labels.ts';

/** How the firmware says that nothing is to be made ready. */
const nothingToDo = 3_216_153_600;
/** Tags of one page of the list. */
const perPage = 20;

export async function readUpload(
  labels: SimulatedLabels,
  contentType: string | undefined,
  body: Buffer,
): Promise<ReadPush> {
  const form = await new Response(new Uint8Array(body), { headers: { 'content-type': contentType ?? '' } })
    .formData()
    .catch(() => new FormData());
  const mac = shortMac(String(form.get('mac') ?? ''));
  const file = form.get('file');
  if (mac === undefined || !(file instanceof Blob)) throw new Refused(text('parameters incomplete', 400));
  // The firmware looks for the label when the file begins, and finds only what came before.
  if (body.indexOf('name="mac"') > body.indexOf('name="file"'))
    throw new Refused(text('parameters incomplete', 400));
  const content = Buffer.from(await file.arrayBuffer());
  if (!content.subarray(0, 3).equals(Buffer.from([0xff, 0xd8, 0xff])))
    throw new Refused(text('not a JPEG', 400));
  return {
    mac,
    page: 1,
    content,
    type: 'image/jpeg',
    hash: await hashOfJpeg(content, labels.get(mac)?.settings.palette ?? 'bwr'),
  };
}

export const uploadAccepted = (): Reply => text('Ok, saved');
export const uploadRefused = (): Refused => new Refused(text('mac not found', 400));

export function listTags(labels: SimulatedLabels, query: URLSearchParams): Reply {
  const mac = query.get('mac');
  const position = Number(query.get('pos') ?? 0);
  const all =
    mac === null ? labels.all() : [labels.get(shortMac(mac) ?? '')].filter((label) => label !== undefined);
  const tags = all.slice(position, position + perPage).map((label) => tag(label, Date.now()));
  const next = position + perPage;
  return json({ tags, ...(mac === null && next < all.length && { continu: next }) });
}

function tag(label: SimulatedLabel, now: number): object {
  const status = statusOf(label, now);
  const waiting = status === 'PROCESSING' || status === 'TIMEOUT';
  const seconds = Math.floor(now / 1000);
  return {
    mac: `0000${label.mac}`,
    hash: (label.images.at(-1)?.bytesHash ?? '').slice(0, 32),
    lastseen: status === 'TIMEOUT' ? seconds - 86_400 : seconds,
    nextupdate: nothingToDo,
    nextcheckin: status === 'TIMEOUT' ? seconds - 86_000 : seconds + 60,
    pending: waiting ? 1 : 0,
    contentMode: 24,
    batteryMv: 2900,
    hwType: 1,
  };
}

const shortMac = (mac: string): string | undefined =>
  /^(?:0000)?([0-9A-F]{12})$/i.exec(mac)?.[1]?.toUpperCase();

/** As the access point does: decoded, and each pixel to the nearest colour that the tag has. */
async function hashOfJpeg(jpeg: Buffer, palette: Palette): Promise<string | null> {
  const rasterize = await rasterizer();
  try {
    const { width, height } = jpegSize(jpeg);
    const href = `data:image/jpeg;base64,${jpeg.toString('base64')}`;
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><image width="${width}" height="${height}" href="${href}" image-rendering="optimizeSpeed"/></svg>`;
    const image = await rasterize(svg, { font: { loadSystemFonts: false } });
    return hashOf(toPalette(image.pixels, palette), { width, height, palette });
  } catch {
    return null;
  }
}

/** From the frame header, which follows a few segments. */
function jpegSize(jpeg: Buffer): { width: number; height: number } {
  for (let at = 2; at + 9 < jpeg.length; at += 2 + jpeg.readUInt16BE(at + 2))
    if (jpeg[at + 1] === 0xc0) return { height: jpeg.readUInt16BE(at + 5), width: jpeg.readUInt16BE(at + 7) };
  throw new Error('a JPEG without a frame');
}
