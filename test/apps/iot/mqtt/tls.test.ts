import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { MqttOptions } from '../../../../src/apps/iot/mqtt/options.ts';
import { until } from '../../../support/engine.ts';
import { broker, listener, numbered, publishAll, publisher, settingsFor } from './support.ts';

const openssl = (folder: string, ...args: string[]): void =>
  void execFileSync('openssl', args, { cwd: folder, stdio: 'ignore' });

function authority(folder: string, name: string): void {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${name}.key`];
  openssl(folder, 'req', '-x509', ...key, '-out', `${name}.pem`, '-subj', `/CN=${name}`, '-days', '2');
}

async function certificate(folder: string, name: string, by: string, names: string): Promise<void> {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${name}.key`];
  openssl(folder, 'req', ...key, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
  await writeFile(join(folder, `${name}.ext`), `subjectAltName=${names}\n`);
  const signer = ['-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', '2'];
  openssl(
    folder,
    ...['x509', '-req', '-in', `${name}.csr`, ...signer, '-out', `${name}.pem`, '-extfile', `${name}.ext`],
  );
}

/** A broker with a TLS listener; `pem` gives the path of a file it was made with. */
async function secured(extra: readonly string[] = []) {
  let pem = (_: string): string => '';
  const mosquitto = await broker({
    secondListener: async (folder, port) => {
      pem = (name) => join(folder, `${name}.pem`);
      authority(folder, 'ca');
      authority(folder, 'stranger');
      await certificate(folder, 'server', 'ca', 'DNS:broker.plant,IP:127.0.0.1');
      await certificate(folder, 'client', 'ca', 'DNS:client');
      const files = [
        `cafile ${pem('ca')}`,
        `certfile ${pem('server')}`,
        `keyfile ${pem('server').slice(0, -3)}key`,
      ];
      return [`listener ${port} 127.0.0.1`, ...files, ...extra];
    },
  });
  const settings = (options: Partial<MqttOptions>) =>
    settingsFor(mosquitto.secondPort, { tls: true, tlsCa: pem('ca'), ...options });
  return { mosquitto, pem, settings };
}

test('MQTT-4: TLS with a CA, from a file or as text', async () => {
  const { mosquitto, pem, settings } = await secured();
  const { consumer, texts } = listener(settings({}));
  await consumer.start();
  expect(consumer.status()).toMatchObject({ ready: true, broker: expect.stringMatching(/^mqtts:/) });
  await publishAll(await publisher(mosquitto.port), numbered(20), 2);
  await until('all has come', () => texts().length === 20);
  const byText = listener(settings({ tlsCa: await readFile(pem('ca'), 'utf8'), instanceId: 'two' }));
  await byText.consumer.start();
  expect(byText.consumer.status().ready).toBe(true);
  const byName = listener(settings({ tlsServerName: 'broker.plant', instanceId: 'three' }));
  await byName.consumer.start();
  expect(byName.consumer.status().ready).toBe(true);
});

test('MQTT-4: client certificates', async () => {
  const { pem, settings } = await secured(['require_certificate true']);
  const without = listener(settings({}));
  await without.consumer.start();
  expect(without.consumer.status()).toMatchObject({ state: 'waiting', ready: false });
  expect(without.consumer.status().reason).toMatch(/client certificate|closed|cut/);
  const tlsCertificate = pem('client');
  const withOne = listener(settings({ tlsCertificate, tlsKey: tlsCertificate.replace('.pem', '.key') }));
  await withOne.consumer.start();
  expect(withOne.consumer.status().ready).toBe(true);
});

test('a broker that cannot be trusted is not talked to, and the reason is told', async () => {
  const { mosquitto, pem, settings } = await secured();
  const reasonWith = async (options: Partial<MqttOptions>): Promise<string | undefined> => {
    const { consumer, logs } = listener(settings(options));
    await consumer.start();
    const { state, reason } = consumer.status();
    expect(state).toBe('waiting');
    await until('it tries again', () => logs.at('debug').length > 0);
    return reason;
  };
  const unknown = /signed by/;
  expect(await reasonWith({ tlsCa: pem('stranger') })).toMatch(unknown);
  expect(await reasonWith({ tlsCa: null })).toMatch(unknown);
  expect(await reasonWith({ tlsServerName: 'other.plant' })).toMatch(/for another name/);
  expect(await reasonWith({ tlsCa: '/no/such/file.pem' })).toMatch(/tlsCa cannot be read/);
  expect(await reasonWith({ brokerPort: mosquitto.port })).toMatch(/does not speak TLS|closed|cut/);
  expect(await reasonWith({ tls: false, tlsCa: null })).toMatch(/TLS|cut/);
});
