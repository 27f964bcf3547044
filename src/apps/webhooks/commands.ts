import type { Command } from 'commander';
import { group } from '../../host/cli/options.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { addDeliveryCommands } from './commands/deliveries.ts';
import { addEndpointCommands } from './commands/endpoints.ts';
import { webhooksFrom } from './commands/frame.ts';

export function addWebhooks(program: Command, frame: CommandFrame): void {
  const webhooks = group(program, 'webhooks', 'endpoints that get events, and their deliveries');
  const withWebhooks = webhooksFrom(frame);
  addEndpointCommands(webhooks, withWebhooks);
  addDeliveryCommands(webhooks, withWebhooks);
}
