/**
 * `tallyman doctor mqtt`: checks whether this deployment can lose messages, and says which setting to change.
 *
 * It connects with its own client id. With the instance's id it would disconnect a running instance.
 */
import type { Finding } from '../../../engine/database/doctor.ts';
import { messageOf } from '../../../engine/errors.ts';
import { pause, within } from '../../../engine/resilience/deadline.ts';
import type { Connection } from './connection.ts';
import { brokerOf } from './dial.ts';
import { type Judge, judgeSettings } from './doctor-settings.ts';
import { openWithin } from './negotiate.ts';
import type { MqttSettings } from './options.ts';
import type { ProtocolVersion } from './packets.ts';
import { asDoctor, forgetSession, probe } from './probe.ts';
import { reasonText } from './reasons.ts';
import { protocolName } from './status.ts';

export interface DoctorMqttOptions {
  readonly settings: MqttSettings;
  /** Probes go to a topic below it; the user must be allowed to write and read there. Default `tallyman/doctor`. */
  readonly probeTopic?: string;
  /** 0: none. Default 20. */
  readonly probes?: number;
  /** Instance ids that are no longer in use: checks whether the broker still keeps a session and messages for them. */
  readonly formerInstances?: readonly string[];
  /** For each answer of the broker. Default 5,000. */
  readonly waitMs?: number;
}

/** Never throws: what cannot be checked is a finding. */
export async function doctorMqtt(options: DoctorMqttOptions): Promise<Finding[]> {
  const findings: Finding[] = [];
  const judge: Judge = (level, check, message, advice) =>
    void findings.push({ check, level, message, ...(advice !== undefined && { advice }) });
  const { settings, waitMs = 5_000 } = options;
  judgeSettings(settings, judge);
  const version = await judgeConnection(settings, waitMs, judge);
  if (version === undefined) return findings;
  const examine = async (check: string, work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      judge('fail', check, `could not be examined: ${messageOf(error)}`, 'See the log of the broker.');
    }
  };
  await examine('mqtt-probes', () => judgeProbes(options, version, waitMs, judge));
  await examine('mqtt-sessions', () => judgeFormer(options, version, waitMs, judge));
  return findings;
}

async function judgeConnection(
  settings: MqttSettings,
  waitMs: number,
  judge: Judge,
): Promise<ProtocolVersion | undefined> {
  // The session ends with the connection: it subscribes to the real topics, and must not keep their messages.
  const own = { ...asDoctor(settings), cleanSession: true, sessionExpiryIntervalSeconds: 0 };
  const system = new Map<string, string>();
  let connection: Connection;
  try {
    connection = await openWithin(waitMs, own, (_, { message: { topic, payload } }) => {
      if (topic.startsWith('$SYS/')) system.set(topic, payload.toString());
    });
  } catch (error) {
    judge('fail', 'mqtt-connection', messageOf(error), 'Until this is fixed, no messages are received.');
    return undefined;
  }
  judge('ok', 'mqtt-connection', `connected to ${brokerOf(settings)}`);
  try {
    await judgeWelcome(settings, connection, judge);
    await judgeSubscriptions(settings, connection, waitMs, judge);
    await judgeSystem(settings, connection, system, waitMs, judge);
  } catch (error) {
    judge('fail', 'mqtt-broker', messageOf(error), 'See the log of the broker.');
  } finally {
    await connection.close();
  }
  return connection.version;
}

async function judgeWelcome(settings: MqttSettings, connection: Connection, judge: Judge): Promise<void> {
  const { sharedSubscriptions, maximumQos, maximumPacketSize } = connection.welcome;
  const { sharedSubscriptionGroup: group, receiveMaximum } = settings;
  if (connection.version === 5) judge('ok', 'mqtt-version', 'the broker speaks MQTT 5');
  else
    judge(
      'warn',
      'mqtt-version',
      'the broker speaks MQTT 3.1.1: no shared groups, no receive maximum, and it alone decides when a session ends',
      'Use a broker with MQTT 5. Reading stops while we are busy, so memory is bounded all the same.',
    );
  if (group === null) judge('ok', 'mqtt-shared', 'no group is set: every instance gets every message');
  else if (sharedSubscriptions)
    judge('ok', 'mqtt-shared', `group ${group}-${settings.environmentId} is shared`);
  else
    judge(
      'warn',
      'mqtt-shared',
      `the broker cannot share a subscription (MQTT ${protocolName(connection.version)}): every instance gets every message`,
      'Nothing is lost, and idempotency keeps effects single, but the work is not spread. Use a broker that can.',
    );
  if (maximumQos < settings.qos)
    judge(
      maximumQos === 0 ? 'fail' : 'warn',
      'mqtt-maximum-qos',
      `the broker grants QoS ${maximumQos} at most`,
      maximumQos === 0
        ? 'It keeps nothing for us: use another broker.'
        : 'Set qos to 1; nothing is lost by it.',
    );
  const size = maximumPacketSize === undefined ? 'no limit of its own' : `${maximumPacketSize} bytes`;
  judge('ok', 'mqtt-limits', `receive maximum ${receiveMaximum}; largest packet the broker takes: ${size}`);
}

/** Not a shared subscription: as a member of the group the doctor would take messages away from it. */
async function judgeSubscriptions(
  { subscribeTopics, qos }: MqttSettings,
  connection: Connection,
  waitMs: number,
  judge: Judge,
): Promise<void> {
  if (subscribeTopics.length === 0) return;
  const codes = await within(connection.subscribe(subscribeTopics, qos), waitMs);
  for (const [i, topic] of subscribeTopics.entries()) {
    const code = codes[i] ?? 0x80;
    const check = 'mqtt-subscription';
    if (code >= 0x80)
      judge('fail', check, `${topic}: refused, ${reasonText(code)}`, 'Check the access list of the broker.');
    else if (code === 0 && qos > 0)
      judge(
        'fail',
        check,
        `${topic}: QoS 0 is granted: the broker keeps nothing for us`,
        'Allow QoS 1 or 2.',
      );
    else if (code < qos)
      judge('warn', check, `${topic}: QoS ${code} is granted, ${qos} was asked for`, 'Set qos.');
    else judge('ok', check, `${topic}: QoS ${code} is granted`);
  }
}

/** What Mosquitto reports about itself; other brokers report nothing here, and that is no finding. */
async function judgeSystem(
  settings: MqttSettings,
  connection: Connection,
  system: ReadonlyMap<string, string>,
  waitMs: number,
  judge: Judge,
): Promise<void> {
  const topics = ['$SYS/broker/version', '$SYS/broker/clients/disconnected'];
  const codes = await within(connection.subscribe(topics, 0), waitMs).catch(() => []);
  if (codes.every((code) => code >= 0x80)) return;
  await pause(Math.min(300, waitMs));
  const version = system.get('$SYS/broker/version');
  if (version?.includes('mosquitto')) {
    const needs =
      'Its defaults lose messages: it needs persistence true, autosave_on_changes false, autosave_interval 1, max_queued_messages 0, set_tcp_nodelay true. With autosave_on_changes true the interval counts changes, not seconds: it would write everything after each message.';
    const { sharedSubscriptionGroup: group } = settings;
    if (group !== null && connection.version === 5 && isBefore2021(version))
      judge(
        'warn',
        'mqtt-shared-restart',
        `${version} may forget the group ${group}-${settings.environmentId} when it is restarted: what is published before an instance subscribes again is lost`,
        'Seen with 2.0.11. Upgrade it to 2.0.21 or later, or leave sharedSubscriptionGroup out: every instance then gets every message, and each counts once.',
      );
    if (isBefore2021(version) && connection.version === 5)
      judge(
        'warn',
        'mqtt-broker',
        `${version} sends more than the receive maximum (${settings.receiveMaximum}) after a reconnect`,
        `Upgrade it to 2.0.21 or later. Until then reading is stopped instead, and more messages than needed come twice. ${needs}`,
      );
    else judge('ok', 'mqtt-broker', `${version}. ${needs}`);
  }
  const away = Number(system.get('$SYS/broker/clients/disconnected') ?? 0);
  if (away > 0)
    judge(
      'warn',
      'mqtt-sessions',
      `${away} session(s) at the broker have nobody connected`,
      'One may be of an instance that is gone: it collects messages, in a shared group its share of them, until it expires. Name old instance ids to have theirs looked for.',
    );
}

/** Versions whose bugs are known, up to the first one that was tried without them. */
function isBefore2021(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = (/(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1) ?? []).map(Number);
  return major < 2 || (major === 2 && minor === 0 && patch < 21);
}

async function judgeProbes(
  { settings, probeTopic: topic = 'tallyman/doctor', probes: count = 20 }: DoctorMqttOptions,
  version: ProtocolVersion,
  waitMs: number,
  judge: Judge,
): Promise<void> {
  if (count === 0) return;
  const report = await probe(settings, version, { topic, count, waitMs });
  const { arrived, published, repeated, sessionPresent } = report;
  const { sessionExpiryIntervalSeconds: asked } = settings;
  if (report.sessionExpirySeconds !== undefined && report.sessionExpirySeconds < asked)
    judge(
      'warn',
      'mqtt-session-expiry',
      `the broker keeps a session for ${report.sessionExpirySeconds} s, not for ${asked} s as asked`,
      'Raise its limit: what is published during a longer outage is lost.',
    );
  if (report.granted >= 0x80)
    judge(
      'fail',
      'mqtt-probes',
      `${report.topic}: refused, ${reasonText(report.granted)}`,
      'Allow the probe topic.',
    );
  else if (!sessionPresent)
    judge(
      'fail',
      'mqtt-probes',
      `the broker forgot our session as soon as we left; ${arrived} of ${published} probes arrived`,
      'Let it keep sessions: cleanSession false, a session expiry above 0, and no lower limit in the broker.',
    );
  else if (arrived < published)
    judge(
      'fail',
      'mqtt-probes',
      `${published - arrived} of ${published} probes, published while we were away, did not arrive`,
      'Let the broker queue for absent clients: Mosquitto max_queued_messages 0; EMQX mqtt.max_mqueue_len and HiveMQ max-queue-size high enough.',
    );
  else if (repeated > 0)
    judge(
      'warn',
      'mqtt-probes',
      `${repeated} of ${published} probes arrived twice`,
      'Idempotency meets them.',
    );
  else judge('ok', 'mqtt-probes', `${published} probes, published while we were away, arrived once each`);
}

async function judgeFormer(
  { settings, formerInstances = [] }: DoctorMqttOptions,
  version: ProtocolVersion,
  waitMs: number,
  judge: Judge,
): Promise<void> {
  const end = `-${settings.instanceId}`;
  const base = settings.clientId.endsWith(end) ? settings.clientId.slice(0, -end.length) : settings.clientId;
  for (const instance of formerInstances) {
    const clientId = `${base}-${instance}`;
    const own = { ...settings, clientId, cleanSession: false, receiveMaximum: 1 };
    const connection = await openWithin(waitMs, own, undefined, version);
    const { sessionPresent } = connection.welcome;
    await connection.close();
    // A session that did not exist was just created.
    if (!sessionPresent) await forgetSession(own, version, waitMs);
    if (sessionPresent)
      judge(
        'warn',
        'mqtt-sessions',
        `the broker still keeps a session for ${clientId}, and messages in it`,
        'Start that instance once more to fetch them, or end the session; its share of a group waits there.',
      );
    else judge('ok', 'mqtt-sessions', `no session was left behind by ${clientId}`);
  }
}
