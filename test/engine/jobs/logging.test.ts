import { describe, expect, test, vi } from 'vitest';
import { PermanentError } from '../../../src/engine/errors.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { consoleLogger, type Logger } from '../../../src/engine/logger.ts';
import { drained, engine, until } from '../../support/engine.ts';

describe('what goes wrong is logged', () => {
  test('ENG-19: a failed attempt, a dead letter, a failed job and a blocked lane are a line each', async () => {
    const lines: string[] = [];
    const note = (level: string) => (fields: object, message: string) => {
      const { job } = fields as { job?: string };
      // A busy machine may give reason for others, which name no job.
      if (job !== undefined) lines.push(`${level} ${message.replace(/ \(.*| :.*/, '')} ${job}`);
    };
    const logger: Logger = { debug: () => {}, info: () => {}, warn: note('warn'), error: note('error') };
    const bundle = await engine({ logger });
    const failing = defineKind({
      name: 'failing',
      retry: { maxAttempts: 2, backoff: () => 0 },
      handler: () => {
        throw new Error('no');
      },
    });
    const refused = defineKind({
      name: 'refused',
      lane: { policy: 'block' },
      handler: () => {
        throw new PermanentError('NO', 'never');
      },
    });
    const { id } = await bundle.tallyman.enqueue(failing, {});
    await bundle.work({ kinds: [failing, refused] });
    await drained(bundle);
    const inLane = await bundle.tallyman.enqueue(refused, {}, { lane: 'a' });
    await until(
      'the lane is blocked',
      async () => (await bundle.tallyman.lanes.get('a'))?.state === 'blocked',
    );
    await until('it is logged', () => lines.length === 4);
    expect(lines).toEqual([
      `warn a job failed and will run again ${id}`,
      `error a job used up its attempts ${id}`,
      `error a job failed for good ${inLane.id}`,
      `error a lane is blocked: nothing behind this job runs until it is redriven to the head or the lane is unblocked ${inLane.id}`,
    ]);
  });

  test('a worker without a logger of yours writes warnings and errors to standard error', () => {
    const error = vi.spyOn(console, 'error').mockImplementation(() => {});
    consoleLogger.info({}, 'nothing of note');
    consoleLogger.error({ job: '7' }, 'it went wrong');
    expect(error.mock.calls).toEqual([['tallyman: it went wrong {"job":"7"}']]);
    error.mockRestore();
  });
});
