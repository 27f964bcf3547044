import { describe, expect, test } from 'vitest';
import { iotKeys } from '../../../../src/apps/iot/config.ts';
import { type MqttOptions, mqttOptions, mqttSettings } from '../../../../src/apps/iot/mqtt/options.ts';
import { effectiveTopic } from '../../../../src/apps/iot/mqtt/subscriptions.ts';
import { mqttSettingsOf } from '../../../../src/apps/iot/mqtt-settings.ts';
import { readConfig } from '../../../../src/config/load.ts';
import { settingsOf } from '../../../../src/host/app.ts';
import { configFile } from './config-file.ts';

const at = (env: Record<string, string> = {}, hostName = 'Plant_7 Server') => ({ env, hostName });
/** `${name}`, as it stands in a configuration. */
const variable = (name: string) => `$\{${name}}`;
const settings = (options: Partial<MqttOptions>, env: Record<string, string> = {}) =>
  mqttSettings({ brokerHost: 'broker', ...options }, at(env));

describe('who we are', () => {
  test('MQTT-2: the environment id is the configured one, then MQTT_ENVIRONMENT_ID, then local-{hostname}', () => {
    const env = { MQTT_ENVIRONMENT_ID: 'staging' };
    expect(settings({ environmentId: 'prod-eu' }, env).environmentId).toBe('prod-eu');
    expect(settings({}, env).environmentId).toBe('staging');
    expect(settings({}).environmentId).toBe('local-plant_7-server');
  });

  test('MQTT-2: in production without one it refuses to start, and says what to set', () => {
    const production = { NODE_ENV: 'production' };
    expect(() => settings({}, production)).toThrow(/environmentId.*MQTT_ENVIRONMENT_ID/);
    expect(settings({}, { ...production, MQTT_ENVIRONMENT_ID: 'p' }).environmentId).toBe('p');
    expect(() => settings({}, { MQTT_ENVIRONMENT_ID: 'a/b' })).toThrow(/MQTT_ENVIRONMENT_ID is "a\/b"/);
  });

  test.each([
    { NODE_ENV: 'Production' },
    { NODE_ENV: ' PRODUCTION ' },
    { KUBERNETES_SERVICE_HOST: '10.0.0.1' },
    { CONTAINER_APP_NAME: 'intake' },
    { ECS_CONTAINER_METADATA_URI_V4: 'http://169.254.170.2/v4/x' },
  ])('MQTT-2: %o is production', (env: Record<string, string>) => {
    expect(() => settings({}, env)).toThrow(new RegExp(`production .*${Object.keys(env)[0]}`));
    expect(settings({}, { ...env, MQTT_ENVIRONMENT_ID: 'p' }).environmentId).toBe('p');
    expect(settings({ environmentId: 'mine' }, env).environmentId).toBe('mine');
  });

  test('MQTT-2: the environment id in the configuration file wins over MQTT_ENVIRONMENT_ID', () => {
    const file = configFile({ mqtt: { brokerHost: 'b', environmentId: 'from-file' } });
    const env = { MQTT_ENVIRONMENT_ID: 'from-variable' };
    const { config } = readConfig({ keys: iotKeys, contradictions: [] }, { env, file });
    expect(mqttSettingsOf(settingsOf(iotKeys, config))?.environmentId).toBe('from-file');
  });

  test('MQTT-3: the client id is {clientId}-{environmentId}-{instanceId}, the same at every start', () => {
    const options = { clientId: 'reads', environmentId: 'prod', instanceId: 'reader-0' };
    expect(settings(options).clientId).toBe('reads-prod-reader-0');
    expect(settings(options).clientId).toBe(settings(options).clientId);
    expect(settings({ environmentId: 'prod' }).clientId).toBe('mqtt-processor-prod-plant_7-server');
  });

  test('MQTT-3: an ephemeral one has a part that never comes again', () => {
    const options = { environmentId: 'e', instanceId: 'i', appendUniqueIdToClientId: true };
    const ids = new Set(Array.from({ length: 100 }, () => settings(options).clientId));
    expect(ids.size).toBe(100);
    for (const id of ids) expect(id).toMatch(/^mqtt-processor-e-i-\d{13}-[0-9a-f]{8}$/);
  });

  test('MQTT-3: a variable is expanded in every value; one that is not there is an error', () => {
    const env = { POD: 'reader-3', HALL: 'north', SECRET: 'x$y' };
    const options = {
      environmentId: 'e',
      instanceId: variable('POD'),
      subscribeTopics: [`plant/${variable('HALL')}/+`],
      username: 'plant',
      password: variable('SECRET'),
    };
    const { clientId, subscribeTopics, password } = settings(options, env);
    expect({ clientId, subscribeTopics, password }).toEqual({
      clientId: 'mqtt-processor-e-reader-3',
      subscribeTopics: ['plant/north/+'],
      password: 'x$y',
    });
    expect(() => settings(options, { ...env, HALL: '' })).toThrow(/subscribeTopics\[0\].*no HALL/);
    expect(() => settings({ instanceId: variable('POD') })).toThrow(/instanceId is "\$\{POD\}".*no POD/);
  });
});

describe('what we ask for', () => {
  test('MQTT-10, MQTT-4: the defaults', () => {
    expect(settings({ environmentId: 'e', instanceId: 'i' })).toMatchObject({
      enabled: true,
      brokerPort: 8883,
      tls: true,
      clientId: 'mqtt-processor-e-i',
      subscribeTopics: [],
      sharedSubscriptionGroup: null,
      cleanSession: false,
      sessionExpiryIntervalSeconds: 3600,
      appendUniqueIdToClientId: false,
      autoReconnect: true,
      reconnectDelaySeconds: 5,
      qos: 2,
      username: null,
      password: null,
    });
  });

  test('MQTT-10: every option is a key of the configuration, with the same default', () => {
    const defaults: Record<string, unknown> = mqttOptions.parse({ brokerHost: 'b' });
    for (const [name, value] of Object.entries(defaults))
      expect([name, iotKeys[`mqtt.${name}` as keyof typeof iotKeys]?.fallback]).toEqual([
        name,
        name === 'brokerHost' ? null : value,
      ]);
  });

  test('MQTT-10: what the keys say is what the consumer gets, from the file and from variables', () => {
    const mqtt = {
      brokerHost: 'b',
      environmentId: 'e',
      cleanSession: true,
      appendUniqueIdToClientId: true,
      autoReconnect: false,
      reconnectDelaySeconds: 0.5,
      maxBatchReads: 7,
      subscribeTopics: ['a/+/reads', { topic: 'b/#', parser: 'zebra-events', tenant: 'acme' }],
    };
    const of = (env: Record<string, string>) => {
      const { config } = readConfig(
        { keys: iotKeys, contradictions: [] },
        { env, file: configFile({ mqtt }) },
      );
      return mqttSettingsOf(settingsOf(iotKeys, config));
    };
    const { clientId: _, ...given } = { clientId: '', ...mqtt };
    expect(of({})).toMatchObject({ ...given, subscribeTopics: ['a/+/reads', 'b/#'] });
    expect(
      of({
        MQTT_ENABLED: 'false',
        MQTT_SUBSCRIBE_TOPICS: 'x/reads, y/reads',
        MQTT_MAX_PACKET_SIZE: '4096',
        MQTT_QOS: '1',
      }),
    ).toMatchObject({ enabled: false, subscribeTopics: ['x/reads', 'y/reads'], maxPacketSize: 4096, qos: 1 });
    expect(of({ MQTT_SUBSCRIBE_TOPICS: '[{"topic": "z/reads"}]' })?.subscribeTopics).toEqual(['z/reads']);
    for (const [text, flaw] of [
      ['[{"topic": "z", "parser": "xml"}]', /mqtt.subscribeTopics/],
      ['[{"topic"', /not JSON/],
      ['a/#/b', /# stands for all/],
      ['[{"topic": "a/b", "tenant": {"level": 3}}]', /tenant of "a\/b" is level 3/],
    ] as const)
      expect(() => of({ MQTT_SUBSCRIBE_TOPICS: text })).toThrow(flaw);
  });

  test('MQTT-10: all that is wrong is told at once, an unknown option included', () => {
    const wrong = {
      brokerHost: '',
      brokerPort: 0,
      brokerHots: 'x',
      subscribeTopics: ['a/#/b'],
    } as MqttOptions;
    let message = '';
    try {
      mqttSettings(wrong, at());
    } catch (error) {
      message = String(error);
    }
    for (const part of ['brokerHost', 'brokerPort', 'brokerHots', '# stands for all that follows'])
      expect(message).toContain(part);
  });

  test('MQTT-4: TLS is on for port 8883, and certificates without TLS are a mistake that is told', () => {
    expect(settings({ brokerPort: 1883 }).tls).toBe(false);
    expect(settings({ brokerPort: 1883, tls: true }).tls).toBe(true);
    expect(() => settings({ brokerPort: 1883, tlsCa: '/ca.pem' })).toThrow(/set tls to true/);
    expect(() => settings({ tlsCertificate: '/c.pem' })).toThrow(/belong together/);
    expect(() => settings({ password: 'x' })).toThrow(/without a user name/);
  });

  test('SEC-8: a password crosses no network without TLS, unless that is allowed', () => {
    const user = { username: 'plant', password: 'x', brokerPort: 1883 };
    for (const brokerHost of ['broker.example.com', '10.0.0.7', '0.0.0.0', '127.0.0.1.example.com'])
      expect(() => settings({ ...user, brokerHost })).toThrow(/in clear text to .*allowClearTextPassword/);
    for (const given of [
      { brokerHost: 'localhost' },
      { brokerHost: '127.0.0.1' },
      { brokerHost: '::1' },
      { brokerHost: '10.0.0.7', tls: true },
      { brokerHost: '10.0.0.7', allowClearTextPassword: true },
      { brokerHost: '10.0.0.7', password: null },
    ])
      expect(() => settings({ ...user, ...given })).not.toThrow();
  });

  test('MQTT-1: $share/{group}-{environmentId}/{topic} with a group, {topic} without', () => {
    const shared = settings({ environmentId: 'prod', sharedSubscriptionGroup: 'reads' });
    expect(effectiveTopic(shared, 'zebra/+/reads')).toBe('$share/reads-prod/zebra/+/reads');
    expect(effectiveTopic(settings({}), 'zebra/+/reads')).toBe('zebra/+/reads');
    expect(() => settings({ sharedSubscriptionGroup: 'a/b' })).toThrow(/one word/);
  });
});
