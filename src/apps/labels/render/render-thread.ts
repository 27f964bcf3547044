/** A thread of `RenderPool`: makes one image at a time, and keeps templates, fonts and glyphs for the next. */
import { parentPort } from 'node:worker_threads';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { TemplateError } from './errors.ts';
import { filled, renderLabel } from './label.ts';
import type { RenderAnswer, RenderTask } from './render-pool.ts';
import { readTemplate, type Template } from './template.ts';

const port = parentPort;
if (!port) throw new Error('this is the script of a thread');

const mostTemplates = 50;
const templates = new Map<string, Template>();

function templateOf(svg: string): Template {
  const known = templates.get(svg);
  if (known) return known;
  const template = readTemplate(svg);
  if (templates.size >= mostTemplates) templates.clear();
  templates.set(svg, template);
  return template;
}

async function answerTo({ svg, values, panel, only }: RenderTask): Promise<RenderAnswer> {
  try {
    const template = templateOf(svg);
    if (only === 'check') {
      await filled(template, { values, palette: panel.palette });
      return {};
    }
    const { png, hash } = await renderLabel(template, values, panel);
    // A copy of its own: small buffers share a large one, which would be sent as a whole.
    return { image: { png: new Uint8Array(png), hash } };
  } catch (error) {
    return {
      error: {
        isTemplate: error instanceof TemplateError,
        code: error instanceof TallymanError ? error.code : undefined,
        message: messageOf(error),
        details: error instanceof TallymanError ? error.details : undefined,
      },
    };
  }
}

port.on('message', (task: RenderTask) => {
  void answerTo(task).then((answer) =>
    port.postMessage(answer, answer.image ? [answer.image.png.buffer as ArrayBuffer] : []),
  );
});
// Loading the renderer is not part of the first image's time.
port.postMessage('ready');
