import type { Logger } from '../../../engine/logger.ts';
import type { Connection } from './connection.ts';
import type { MqttSettings } from './options.ts';
import { reasonText } from './reasons.ts';
import type { MqttSubscription } from './status.ts';
import { sharedFilter } from './topics.ts';

/** The filter as it is sent: shared if a group is set and the broker supports it. */
export function effectiveTopic(
  { sharedSubscriptionGroup: group, environmentId }: MqttSettings,
  topic: string,
  canShare = true,
): string {
  return group === null || !canShare ? topic : sharedFilter(group, environmentId, topic);
}

/** Subscribes to all filters, also if the session exists: the topics may have changed since. */
export async function subscribeAll(
  connection: Connection,
  settings: MqttSettings,
  topics: readonly string[],
  logger: Logger,
): Promise<MqttSubscription[]> {
  if (topics.length === 0) return [];
  const { sharedSubscriptions: canShare } = connection.welcome;
  const { sharedSubscriptionGroup: group, qos } = settings;
  if (group !== null && !canShare)
    logger.warn(
      { group },
      'this broker cannot share subscriptions: every instance gets every message, and only idempotent commits count each once',
    );
  const effective = topics.map((topic) => effectiveTopic(settings, topic, canShare));
  const codes = await connection.subscribe(effective, qos);
  return topics.map((topic, i) => {
    const code = codes[i] ?? 0x80;
    const subscription = {
      topic,
      effective: effective[i] ?? topic,
      granted: code < 0x80 ? code : reasonText(code),
    };
    const fields = { topic: subscription.effective, group: canShare ? group : null, qos: code };
    if (code >= 0x80)
      logger.error({ ...fields, qos: undefined, reason: subscription.granted }, 'MQTT subscription refused');
    else if (code < qos)
      logger.warn(
        { ...fields, asked: qos },
        code === 0
          ? 'MQTT subscription granted at QoS 0: the broker keeps nothing for us'
          : 'MQTT subscription granted at a lower QoS',
      );
    else logger.info(fields, 'MQTT subscription');
    return subscription;
  });
}
