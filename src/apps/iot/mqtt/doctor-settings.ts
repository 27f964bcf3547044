import type { Finding } from '../../../engine/database/doctor.ts';
import { isLoopbackHost } from '../../../network/loopback.ts';
import type { MqttSettings } from './options.ts';
import { effectiveTopic } from './subscriptions.ts';

export type Judge = (level: Finding['level'], check: string, message: string, advice?: string) => void;

/** Findings that need no broker. */
export function judgeSettings(settings: MqttSettings, judge: Judge): void {
  const { environmentId, clientId, cleanSession, sessionExpiryIntervalSeconds: expiry } = settings;
  judge(
    'ok',
    'mqtt-identity',
    `environment ${environmentId}, client id ${clientId}, clean start ${cleanSession}, session expiry ${expiry} s`,
  );
  if (settings.appendUniqueIdToClientId)
    judge(
      'fail',
      'mqtt-client-id',
      'the client id is another one at every start: what the broker keeps for the last one is never fetched',
      'Set appendUniqueIdToClientId to false; it is for tests.',
    );
  else if (settings.instanceIdFrom === 'host name' && looksGenerated(settings.instanceId))
    judge(
      'warn',
      'mqtt-client-id',
      `the instance id is the host name "${settings.instanceId}", which looks made up for one start`,
      'Run a StatefulSet, whose pods keep their names, or set instanceId. A new name is a new session; the old one keeps its messages until it expires.',
    );
  else
    judge('ok', 'mqtt-client-id', `the instance id "${settings.instanceId}" stays the same over a restart`);
  if (cleanSession || expiry === 0)
    judge(
      'fail',
      'mqtt-session-settings',
      `${cleanSession ? 'cleanSession is true' : 'the session expires at once'}: messages published while no connection is up are lost`,
      'Set cleanSession to false and sessionExpiryIntervalSeconds to more than the longest outage you expect.',
    );
  if (settings.qos === 0)
    judge('fail', 'mqtt-qos', 'QoS 0 is asked for: the broker keeps nothing for us', 'Set qos to 1 or 2.');
  if (settings.maxPacketSize !== null && settings.maxPacketSize < 1024 * 1024)
    judge(
      'warn',
      'mqtt-packet-size',
      `maxPacketSize is ${settings.maxPacketSize}: the broker drops what is larger, and tells nobody`,
      'Set it to 1 MiB or more, and limit the size where messages enter the broker.',
    );
  if (!settings.tls && !isLoopbackHost(settings.brokerHost))
    judge('warn', 'mqtt-tls', 'the connection is not encrypted', 'Use the TLS port (8883) of the broker.');
  const topics = settings.subscribeTopics.map((topic) => effectiveTopic(settings, topic));
  if (topics.length === 0)
    judge('warn', 'mqtt-topics', 'no topics are subscribed to', 'Set subscribeTopics.');
  else judge('ok', 'mqtt-topics', `effective topics: ${topics.join(', ')}`);
}

/** A pod of a Deployment, or a container that was given no name. */
const looksGenerated = (name: string): boolean =>
  /-[a-z0-9]{7,10}-[a-z0-9]{5}$/.test(name) || /^[0-9a-f]{12}$/.test(name);
