/**
 * The options of a consumer and how they are resolved: defaults, `${NAME}` from the environment, and the client id under
 * which the broker keeps this instance's messages.
 */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import { productionSign } from '../../../host/process/production.ts';
import { isLoopbackHost } from '../../../network/loopback.ts';
import { flawOf } from './topics.ts';

const whole = (min: number, max: number) => z.int().min(min).max(max);
const name = z.string().min(1);
/** Becomes part of a topic filter and of the client id. */
const word = name.regex(/^[^/+#\s\0]+$/, 'must be one word without / + #');
const filter = z.string().superRefine((text, context) => {
  const flaw = flawOf(text);
  if (flaw !== undefined)
    context.addIssue({ code: 'custom', message: `"${text}" is no topic filter: ${flaw}` });
});

export const mqttOptions = z.strictObject({
  enabled: z.boolean().default(true),
  brokerHost: name,
  brokerPort: whole(1, 65_535).default(8883),
  username: name.nullable().default(null),
  password: z.string().nullable().default(null),
  /** The password may cross a network without TLS. */
  allowClearTextPassword: z.boolean().default(false),
  clientId: word.default('mqtt-processor'),
  environmentId: word.nullable().default(null),
  instanceId: word.nullable().default(null),
  /** A new client id at every start. Messages kept for the last one are never fetched: for tests. */
  appendUniqueIdToClientId: z.boolean().default(false),
  subscribeTopics: z.array(filter).default([]),
  sharedSubscriptionGroup: word.nullable().default(null),
  qos: z.literal([0, 1, 2]).default(2),
  cleanSession: z.boolean().default(false),
  sessionExpiryIntervalSeconds: whole(0, 4_294_967_295).default(3600),
  autoReconnect: z.boolean().default(true),
  reconnectDelaySeconds: z.number().min(0.01).max(3600).default(5),
  /** The delay doubles with each failure in a row, up to this. */
  maxReconnectDelaySeconds: z.number().min(0.01).max(86_400).default(60),
  connectTimeoutSeconds: z.number().min(0.1).max(600).default(10),
  keepAliveSeconds: whole(1, 65_535).default(30),
  /** The most messages that the broker may have sent and we have not committed. */
  receiveMaximum: whole(1, 65_535).default(1000),
  /** Reading pauses while this many bytes wait for their commit, whatever the receive maximum says. */
  maxInFlightBytes: whole(1024, Number.MAX_SAFE_INTEGER).default(64 * 1024 * 1024),
  /** Null: no limit from us. A broker of MQTT 5 drops larger messages silently; one of 3.1.1 sends them, and is left. */
  maxPacketSize: whole(128, 268_435_455)
    .nullable()
    .default(16 * 1024 * 1024),
  /** Messages that share one commit, at most. */
  maxBatch: whole(1, 65_535).default(500),
  /** Bytes that share one commit, at most; a longer message goes alone. */
  maxBatchBytes: whole(1024, Number.MAX_SAFE_INTEGER).default(8 * 1024 * 1024),
  /** Reads that share one commit, at most, where the handler can count them; a message with more goes alone. */
  maxBatchReads: whole(1, 1_000_000).default(2000),
  /** `auto`: 5, and 3.1.1 where the broker refuses it. */
  protocol: z.literal(['auto', '5', '3.1.1']).default('auto'),
  /** Default: on port 8883 only. */
  tls: z.boolean().nullable().default(null),
  /** PEM, or the path of a file; files are read again at each connect, so that renewed certificates are used. */
  tlsCa: name.nullable().default(null),
  tlsCertificate: name.nullable().default(null),
  tlsKey: name.nullable().default(null),
  /** The name in the broker's certificate, if it is not `brokerHost`. */
  tlsServerName: name.nullable().default(null),
});

export type MqttOptions = z.input<typeof mqttOptions>;

/** Resolved options, as a consumer uses them. */
export interface MqttSettings
  extends Omit<z.output<typeof mqttOptions>, 'clientId' | 'environmentId' | 'instanceId' | 'tls'> {
  readonly environmentId: string;
  readonly instanceId: string;
  /** As the broker knows it: `{clientId}-{environmentId}-{instanceId}`. */
  readonly clientId: string;
  readonly tls: boolean;
  /** Where the instance id comes from: if a host name changes, the session is lost. */
  readonly instanceIdFrom: 'configuration' | 'host name';
}

export interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly hostName: string;
}

/** Throws BAD_OPTION with all problems. */
export function mqttSettings(
  options: MqttOptions,
  { env, hostName }: Surroundings = { env: process.env, hostName: hostname() },
): MqttSettings {
  const parsed = mqttOptions.safeParse(expanded(options, env));
  if (!parsed.success) {
    const flaws = parsed.error.issues.map(
      (issue) => `${issue.path.join('.') || 'options'}: ${issue.message}`,
    );
    throw bad(`MQTT options: ${flaws.join('; ')}`);
  }
  const given = parsed.data;
  if ((given.tlsCertificate === null) !== (given.tlsKey === null))
    throw bad('MQTT options: tlsCertificate and tlsKey belong together; only one of them is set');
  if (given.password !== null && given.username === null)
    throw bad('MQTT options: there is a password without a user name');
  const tls = given.tls ?? given.brokerPort === 8883;
  if (!tls && (given.tlsCa ?? given.tlsCertificate) !== null)
    throw bad(
      `MQTT options: certificates are given, but TLS is off on port ${given.brokerPort}: set tls to true`,
    );
  if (!tls && given.password !== null && !given.allowClearTextPassword && !isLoopbackHost(given.brokerHost))
    throw bad(
      `MQTT options: the password would cross the network in clear text to ${given.brokerHost}: turn TLS on, or allow it with allowClearTextPassword`,
    );
  const environmentId = environmentOf(given.environmentId, env, hostName);
  const instanceId = given.instanceId ?? safe(hostName);
  const unique = given.appendUniqueIdToClientId ? `-${Date.now()}-${randomBytes(4).toString('hex')}` : '';
  return {
    ...given,
    tls,
    environmentId,
    instanceId,
    instanceIdFrom: given.instanceId === null ? 'host name' : 'configuration',
    clientId: `${given.clientId}-${environmentId}-${instanceId}${unique}`,
  };
}

function environmentOf(configured: string | null, env: Surroundings['env'], hostName: string): string {
  if (configured !== null) return configured;
  const named = env.MQTT_ENVIRONMENT_ID;
  if (named !== undefined && named !== '') {
    const word_ = word.safeParse(named);
    if (!word_.success) throw bad(`MQTT_ENVIRONMENT_ID is "${named}": it ${word_.error.issues[0]?.message}`);
    return named;
  }
  const sign = productionSign(env);
  if (sign !== undefined)
    throw bad(
      `MQTT has no environment id, and this is production (${sign}): set mqtt.environmentId, or the variable MQTT_ENVIRONMENT_ID. ` +
        'Two environments with the same id would take messages from each other.',
    );
  return `local-${safe(hostName)}`;
}

const safe = (text: string): string => text.toLowerCase().replace(/[^a-z0-9_.-]/g, '-');

/** Replaces `${NAME}` in any value, also inside lists; a missing variable is an error, not an empty string. */
export function expanded(value: unknown, env: Surroundings['env'] = process.env, path = ''): unknown {
  if (typeof value === 'string') {
    return value.replace(/\$\{([^}]*)\}/g, (whole_, variable: string) => {
      const found = env[variable];
      if (found === undefined || found === '')
        throw bad(
          `MQTT option ${path} is "${whole_}", but the environment has no ${variable || 'such variable'}`,
        );
      return found;
    });
  }
  if (Array.isArray(value)) return value.map((item, i) => expanded(item, env, `${path}[${i}]`));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [key, expanded(inner, env, path ? `${path}.${key}` : key)]),
    );
  return value;
}

const bad = (message: string): TallymanError => new TallymanError('BAD_OPTION', message);
