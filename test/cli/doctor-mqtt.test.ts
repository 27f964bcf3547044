import { expect, onTestFinished, test } from 'vitest';
import { privateMosquitto } from '../support/services/mosquitto.ts';
import { scratch, start } from './support.ts';

test('MQTT-11: doctor mqtt proves a broker with probes, and says what is wrong with one that is not there', async () => {
  const broker = await privateMosquitto();
  onTestFinished(() => broker[Symbol.asyncDispose]());
  await broker.start();
  const cwd = await scratch();
  const doctor = (env: Record<string, string>, ...args: string[]) =>
    start('src/cli/main.ts', ['doctor', 'mqtt', ...args], { cwd, env }).ended;
  const there = {
    MQTT_BROKER_HOST: '127.0.0.1',
    MQTT_BROKER_PORT: String(broker.port),
    MQTT_ENVIRONMENT_ID: 'test',
  };
  const well = await doctor(there, '--json');
  expect(well.code).toBe(0);
  const { healthy, findings } = JSON.parse(well.stdout);
  expect(healthy).toBe(true);
  expect(findings).toContainEqual(
    expect.objectContaining({
      check: 'mqtt-probes',
      level: 'ok',
      message: expect.stringContaining('once each'),
    }),
  );
  const away = await doctor({ ...there, MQTT_BROKER_PORT: '1' });
  expect(away).toMatchObject({ code: 5, stdout: expect.stringContaining('fail') });
  expect(away.stderr).not.toMatch(/\n +at /);
  expect(await doctor({})).toMatchObject({ code: 2, stderr: expect.stringContaining('MQTT_BROKER_HOST') });
});
