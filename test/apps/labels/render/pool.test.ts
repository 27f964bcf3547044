import { expect, onTestFinished, test } from 'vitest';
import {
  builtInTemplate,
  RenderPool,
  readTemplate,
  renderLabel,
  sampleValues,
} from '../../../../src/apps/labels/render/index.ts';
import { until } from '../../../support/until.ts';
import { panel, svg } from './support.ts';

const small = { svg: builtInTemplate(panel), values: sampleValues, panel };

const texts = (attributes: string): string =>
  svg(`<tally-text x="0" y="9" ${attributes}>{{a}}{{a}}</tally-text>`.repeat(1500));
const values = { a: 'Union of all '.repeat(150), locale: 'de-DE' };

/** Within all limits of what a template may hold, and long work: thousands of long texts that shrink, and do not fit. */
const endless = { svg: texts('width="10" font-size="900" min-font-size="1"'), values, panel };
/** The same, and all of it is drawn. */
const large = { svg: texts('width="200" lines="20" font-size="900" min-font-size="1"'), values, panel };

function pool(options: ConstructorParameters<typeof RenderPool>[0]): RenderPool {
  const made = new RenderPool(options);
  onTestFinished(() => made.close());
  return made;
}

test('SEC-2: a process makes the same image, and is started when there is work', async () => {
  const processes = pool({ processes: 2 });
  expect(processes.size).toBe(0);
  const made = await processes.render('a', small);
  expect(processes.size).toBe(1);
  expect(made).toEqual(await renderLabel(readTemplate(small.svg), small.values, panel));
  await expect(processes.render('a', { ...small, values: {} })).rejects.toMatchObject({
    name: 'TemplateError',
    code: 'LABEL_TEMPLATE',
    details: { placeholder: expect.any(String) },
  });
});

test('SEC-2: an image that takes too long is ended, and the next one is made', async () => {
  const processes = pool({ processes: 1, timeMs: 300 });
  await expect(processes.render('a', endless)).rejects.toMatchObject({ code: 'LABEL_TOO_COSTLY' });
  const { hash } = await pool({ processes: 1 }).render('a', small);
  // The limit is on time, and a machine may be slow: it may take several attempts.
  for (;;) {
    const made = await processes.render('a', small).catch((error: { code: string }) => error.code);
    if (made !== 'LABEL_TOO_COSTLY') return expect(made).toMatchObject({ hash });
  }
});

test('SEC-2: an image that takes too much memory ends its own process, not ours', async () => {
  await expect(pool({ processes: 1, memoryMb: 12 }).render('a', large)).rejects.toMatchObject({
    code: 'LABEL_TOO_COSTLY',
  });
});

test('SEC-2: one tenant does not keep the processes from another, and may not have any number waiting', async () => {
  const processes = pool({ processes: 1, mostWaiting: 5 });
  const settled: string[] = [];
  const greedy = Array.from({ length: 6 }, () =>
    processes.render('greedy', endless).catch((error: { code: string }) => settled.push(error.code)),
  );
  await expect(processes.render('greedy', small)).rejects.toMatchObject({ code: 'LABELS_BUSY' });
  await processes.render('modest', small);
  // Each takes until its limit, and they run one after the other.
  expect(settled.length).toBeLessThan(6);
  await processes.close();
  await Promise.all(greedy);
  expect(settled.length).toBe(6);
});

/** Within all counted limits, and long work within the renderer's native code, each of another part of it. */
const bombs = {
  'a path that crosses itself, drawn often': `<g id="a"><path d="M${Array.from({ length: 5000 }, (_, i) => `${(i * 7919) % 997} ${(i * 104_729) % 991}`).join('L')}"/></g>${'<use href="#a"/>'.repeat(900)}`,
  'an image of one pixel, drawn large and often': `<g id="a"><image width="1000" height="1000" preserveAspectRatio="none" href="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="/></g>${'<use href="#a"/>'.repeat(990)}`,
  'wide strokes with round corners': `<g id="a"><path fill="none" stroke="#000" stroke-width="90" stroke-linejoin="round" d="M${Array.from({ length: 5000 }, (_, i) => `${(i * 7919) % 997} ${(i * 104_729) % 991}`).join('L')}"/></g>${'<use href="#a"/>'.repeat(900)}`,
  'text, drawn often': `<g id="a"><text y="9" font-size="9">${'gW'.repeat(20_000)}</text></g>${'<use href="#a"/>'.repeat(900)}`,
};

test.each(Object.entries(bombs))(
  'SEC-2: what keeps native code busy is ended as well, and its place is free again: %s',
  async (_, content) => {
    const size = { width: 1000, height: 1000, palette: 'bw' } as const;
    const processes = pool({ processes: 1, timeMs: 300 });
    const bomb = { svg: svg(content, size), values: {}, panel: size };
    await expect(processes.render('a', bomb)).rejects.toMatchObject({ code: 'LABEL_TOO_COSTLY' });
    // The same tenant has one place only: it waits until the process is gone, not until the renderer returns.
    await until('the next one is made', () =>
      processes.render('a', small).then(
        () => true,
        () => false,
      ),
    );
  },
);
