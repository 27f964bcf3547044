import { type Host, type RunningApp, settingsOf } from '../../host/app.ts';
import { iotKeys, mqttSettingsOf } from '../iot/index.ts';
import type { RfidConfig } from './config.ts';
import { startIntake } from './intake/intake.ts';
import type { PlantMetrics } from './intake/metrics.ts';
import { warehouseOf } from './wms/configured.ts';

export async function startRfid(host: Host, config: RfidConfig, metrics: PlantMetrics): Promise<RunningApp> {
  const plates = warehouseOf(config);
  const intake = await startIntake({
    tallyman: host.tallyman,
    settings: mqttSettingsOf(settingsOf(iotKeys, host.config)),
    logger: host.logger,
    observer: metrics,
    replayIntervalMs: config['replay.intervalMs'] || undefined,
    upkeep: {
      plates,
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
  return {
    summary: broker + (plates ? `, plates from ${new URL(config['wms.url'] ?? '').host}` : ''),
    health: () => {
      const now = intake.status().mqtt;
      return now
        ? [{ name: 'mqtt', trouble: now.ready ? undefined : (now.reason ?? `MQTT is ${now.state}`) }]
        : [];
    },
  };
}
