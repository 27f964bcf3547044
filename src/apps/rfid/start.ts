import { type Host, type RunningApp, settingsOf } from '../../host/app.ts';
import { configuredSubscriptions, iotKeys, mqttSettingsOf } from '../iot/index.ts';
import type { MqttStatus } from '../iot/mqtt/index.ts';
import { judgement, movementsOf, type RfidConfig } from './config.ts';
import { startIntake } from './intake/intake.ts';
import type { PlantMetrics } from './intake/metrics.ts';
import { warehouseOf } from './wms/configured.ts';

export async function startRfid(host: Host, config: RfidConfig, metrics: PlantMetrics): Promise<RunningApp> {
  const plates = warehouseOf(config);
  const iot = settingsOf(iotKeys, host.config);
  const intake = await startIntake({
    tallyman: host.tallyman,
    settings: mqttSettingsOf(iot),
    subscriptions: configuredSubscriptions(iot),
    judgement: judgement(config),
    maxAttempts: config['rfid.maxAttempts'],
    logger: host.logger,
    observer: metrics,
    movements: movementsOf(config),
    replayIntervalMs: config['replay.intervalMs'] || undefined,
    upkeep: {
      plates: plates ?? null,
      retention: { rawMs: config['retention.rawReadsMs'], processedMs: config['retention.readsMs'] },
    },
  });
  host.onStop(() => intake.stop());
  host.observe(intake.worker);
  metrics.observe(intake);
  const { mqtt } = intake.status();
  const broker = mqtt
    ? `MQTT from ${mqtt.broker} as ${mqtt.clientId}`
    : 'no broker (mqtt.brokerHost is not set)';
  if (mqtt && iot['mqtt.subscribeTopics'].length === 0)
    host.logger.warn({ broker: mqtt.broker }, 'no topics are subscribed to: set mqtt.subscribeTopics');
  return {
    summary: broker + (plates ? `, plates from ${new URL(config['wms.url'] ?? '').host}` : ''),
    health: () => {
      const now = intake.status().mqtt;
      if (!now || now.state === 'disabled') return [];
      return [
        { name: 'mqtt', trouble: now.ready ? undefined : (now.reason ?? `MQTT is ${now.state}`) },
        { name: 'intake', trouble: troubleOf(now, iot['mqtt.stalledAfterSeconds']) },
      ];
    },
  };
}

/** Why messages that arrive do not get into the database. */
function troubleOf({ counters }: MqttStatus, stalledAfterSeconds: number): string | undefined {
  const { inFlight, oldestInFlightSeconds, rejectedInARow } = counters;
  if (oldestInFlightSeconds < stalledAfterSeconds) return undefined;
  const waiting = `${inFlight} messages are not committed, the oldest for ${Math.round(oldestInFlightSeconds)} s`;
  return rejectedInARow > 0
    ? `${waiting}: ${rejectedInARow} commits in a row failed, see the log`
    : `${waiting}: the database is slow, or somebody holds a lock`;
}
