import { expect, onTestFinished, test } from 'vitest';
import {
  builtInTemplate,
  RenderPool,
  readTemplate,
  renderLabel,
  sampleValues,
} from '../../../../src/apps/labels/render/index.ts';
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

test('SEC-2: a thread makes the same image, and is started when there is work', async () => {
  const threads = pool({ threads: 2 });
  expect(threads.size).toBe(0);
  const made = await threads.render('a', small);
  expect(threads.size).toBe(1);
  expect(made).toEqual(await renderLabel(readTemplate(small.svg), small.values, panel));
  await expect(threads.render('a', { ...small, values: {} })).rejects.toMatchObject({
    name: 'TemplateError',
    code: 'LABEL_TEMPLATE',
    details: { placeholder: expect.any(String) },
  });
});

test('SEC-2: an image that takes too long is ended, and the next one is made', async () => {
  const threads = pool({ threads: 1, timeMs: 300 });
  await expect(threads.render('a', endless)).rejects.toMatchObject({ code: 'LABEL_TOO_COSTLY' });
  const { hash } = await pool({ threads: 1 }).render('a', small);
  // The limit is on time, and a machine may be slow: it may take several attempts.
  for (;;) {
    const made = await threads.render('a', small).catch((error: { code: string }) => error.code);
    if (made !== 'LABEL_TOO_COSTLY') return expect(made).toMatchObject({ hash });
  }
});

test('SEC-2: an image that takes too much memory ends its thread, not the process', async () => {
  await expect(pool({ threads: 1, memoryMb: 12 }).render('a', large)).rejects.toMatchObject({
    code: 'LABEL_TOO_COSTLY',
  });
});

test('SEC-2: one tenant does not keep the threads from another, and may not have any number waiting', async () => {
  const threads = pool({ threads: 1, mostWaiting: 5 });
  const settled: string[] = [];
  const greedy = Array.from({ length: 6 }, () =>
    threads.render('greedy', endless).catch((error: { code: string }) => settled.push(error.code)),
  );
  await expect(threads.render('greedy', small)).rejects.toMatchObject({ code: 'LABELS_BUSY' });
  await threads.render('modest', small);
  // Each takes until its limit, and they run one after the other.
  expect(settled.length).toBeLessThan(6);
  await threads.close();
  await Promise.all(greedy);
  expect(settled.length).toBe(6);
});
