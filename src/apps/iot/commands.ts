import type { Command } from 'commander';
import { settingsOf } from '../../host/app.ts';
import { usage } from '../../host/cli/exit.ts';
import { examples, group, wholeNumber } from '../../host/cli/options.ts';
import { reportFindings } from '../../host/cli/report.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { iotKeys } from './config.ts';
import { mqttSettingsOf } from './mqtt-settings.ts';

export function addIot(program: Command, frame: CommandFrame): void {
  group(program, 'doctor', 'check that everything is fit for work')
    .command('mqtt')
    .description(
      'prove that intake from the MQTT broker loses nothing: settings, session, probes that arrive once',
    )
    .option('--probe-topic <topic>', 'probes go to a topic below it', 'tallyman/doctor')
    .option('--probes <count>', 'how many; 0 sends none', wholeNumber(0, 10_000), 20)
    .option(
      '--former-instance <id...>',
      'instance ids no longer in use: does a session of theirs still hoard messages?',
    )
    .addHelpText('after', examples(['doctor mqtt', 'doctor mqtt --former-instance intake-3 --json']))
    .action(
      async (
        options: { probeTopic: string; probes: number; formerInstance?: string[] },
        command: Command,
      ) => {
        const settings = mqttSettingsOf(settingsOf(iotKeys, frame.loadConfig()));
        if (!settings)
          throw usage('mqtt.brokerHost (MQTT_BROKER_HOST) is not set: there is no broker to examine');
        const { doctorMqtt } = await import('./mqtt/doctor.ts');
        const { probeTopic, probes, formerInstance: formerInstances = [] } = options;
        const findings = await doctorMqtt({ settings, probeTopic, probes, formerInstances });
        // `doctor` itself has --json, too, and parses it first.
        reportFindings(
          command.optsWithGlobals(),
          { broker: `${settings.brokerHost}:${settings.brokerPort}` },
          findings,
        );
      },
    );
}
