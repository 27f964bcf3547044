/** A process of `RenderPool`: makes one image at a time, and keeps templates, fonts and glyphs for the next. */
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { TemplateError } from './errors.ts';
import { filled, renderLabel } from './label.ts';
import type { RenderAnswer, RenderTask } from './render-pool.ts';
import { readTemplate, type Template } from './template.ts';

const answer = (message: RenderAnswer | 'ready'): void => {
  process.send?.(message);
};

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
    if (only === 'read') {
      const { placeholders, width, height } = template;
      return { template: { placeholders, width, height } };
    }
    if (only === 'check') {
      await filled(template, { values, palette: panel.palette });
      return {};
    }
    const { png, hash } = await renderLabel(template, values, panel);
    return { image: { png, hash } };
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

process.on('message', (task: RenderTask) => {
  void answerTo(task).then(answer);
});
// Signals go to all processes of a terminal or a service; the one that started this one decides when it ends.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
process.on('disconnect', () => process.exit());
// Loading the renderer is not part of the first image's time.
answer('ready');
