import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { settingsOf } from '../../../host/app.ts';
import { withJson } from '../../../host/cli/options.ts';
import type { CommandFrame, Session } from '../../../host/cli/session.ts';
import { loadSecretBox } from '../../../host/process/secrets.ts';
import type { SecretBox } from '../../../secrets/box.ts';
import { webhooksKeys } from '../config.ts';
import { addressPolicy } from '../configured.ts';
import type { Endpoint } from '../endpoints.ts';
import { Webhooks } from '../webhooks.ts';

export interface TenantOption {
  readonly tenant?: string;
}

export const withTenant = (command: Command): Command =>
  command.option('-t, --tenant <id>', 'of this tenant');
export const withId = (command: Command): Command =>
  withTenant(withJson(command)).argument('<id>', 'id of the endpoint');

export type WithWebhooks = ReturnType<typeof webhooksFrom>;

/** Only commands that create or change a secret need the master secret. */
export const webhooksFrom =
  ({ withTallyman }: CommandFrame) =>
  (
    { secrets = false }: { readonly secrets?: boolean },
    work: (webhooks: Webhooks, session: Session) => Promise<void>,
  ): Promise<void> =>
    withTallyman(async (session) => {
      const { tallyman, config } = session;
      const box: SecretBox | undefined = secrets ? await loadSecretBox(config) : undefined;
      const policy = addressPolicy(settingsOf(webhooksKeys, config));
      await work(new Webhooks(tallyman.database, { policy, ...(box && { box }) }), session);
    });

/** Treats an endpoint of another tenant as not found. */
export async function find(all: Webhooks, id: string, { tenant }: TenantOption): Promise<Endpoint> {
  const endpoint = await all.get(id);
  if (!endpoint || (tenant !== undefined && endpoint.tenantId !== tenant))
    throw new TallymanError(
      'NOT_FOUND',
      `there is no webhook endpoint ${id}${tenant ? ` of tenant "${tenant}"` : ''}`,
    );
  return endpoint;
}
