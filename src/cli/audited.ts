import { userInfo } from 'node:os';
import type { Command } from 'commander';
import { messageOf, TallymanError } from '../engine/errors.ts';
import { complain } from '../host/cli/output/print.ts';
import type { Ended, Session } from '../host/cli/session.ts';
import { homeTenant } from '../host/roles.ts';
import { type AuditEvent, auditWithin } from '../server/access/audit.ts';

/** Commands that change nothing. Every other one is in the audit. */
const reading: ReadonlySet<string> = new Set([
  ...[
    'attempts',
    'audit',
    'check',
    'config',
    'deliveries',
    'doctor',
    'documents',
    'events',
    'export',
    'fetch',
  ],
  ...['find', 'get', 'jobs', 'list', 'mqtt', 'preview', 'quarantine', 'read', 'reconcile', 'show', 'status'],
  ...['tail', 'test', 'types', 'verify'],
]);

/** A fetch that confirms what it shows moves the consumer's cursor. */
const isReading = (command: Command): boolean =>
  reading.has(command.name()) && command.opts<{ confirm?: unknown }>().confirm !== true;

/** `keys create` */
function pathOf(command: Command): string[] {
  return command.parent ? [...pathOf(command.parent), command.name()] : [];
}

/**
 * Writes into the audit what a command did, or that it failed; where the server's tables are not there, nothing. It is written after
 * the command's own transactions: a process that is killed in between leaves no line.
 */
export async function auditCommand(
  { tallyman: { database } }: Pick<Session, 'tallyman'>,
  command: Command | undefined,
  ended: Ended,
): Promise<void> {
  if (!command || isReading(command)) return;
  try {
    const { rows } = await database.query<{ isThere: boolean }>(
      `select to_regclass('tallyman_server.audit_seals') is not null as "isThere"`,
    );
    if (rows[0]?.isThere) await auditWithin(database, eventOf(command, ended));
  } catch (trouble) {
    if (ended.error === undefined)
      complain(`It is done, but could not be written into the audit: ${messageOf(trouble)}`);
  }
}

function eventOf(command: Command, { error, made }: Ended): AuditEvent {
  const { tenant } = command.opts<{ tenant?: unknown }>();
  const [named] = command.processedArgs;
  const resource = made ?? (typeof named === 'string' ? named : undefined);
  const hasFailed = error !== undefined;
  return {
    tenantId: typeof tenant === 'string' ? tenant : homeTenant,
    actor: `cli:${userInfo().username}`,
    action: pathOf(command).join('.'),
    resource: resource?.slice(0, 512) ?? null,
    outcome: hasFailed ? 'failed' : 'done',
    status: hasFailed ? 500 : 200,
    code: error instanceof TallymanError ? error.code : null,
    correlationId: null,
    address: null,
  };
}
