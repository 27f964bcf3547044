import { describe, expect, test } from 'vitest';
import { type MqttOptions, mqttSettings } from '../../../../src/apps/iot/mqtt/options.ts';
import { effectiveTopic } from '../../../../src/apps/iot/mqtt/subscriptions.ts';

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

  test('MQTT-1: $share/{group}-{environmentId}/{topic} with a group, {topic} without', () => {
    const shared = settings({ environmentId: 'prod', sharedSubscriptionGroup: 'reads' });
    expect(effectiveTopic(shared, 'zebra/+/reads')).toBe('$share/reads-prod/zebra/+/reads');
    expect(effectiveTopic(settings({}), 'zebra/+/reads')).toBe('zebra/+/reads');
    expect(() => settings({ sharedSubscriptionGroup: 'a/b' })).toThrow(/one word/);
  });
});
