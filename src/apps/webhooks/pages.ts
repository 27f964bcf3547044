import { facts, table } from '../../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../../host/cli/output/terminal.ts';
import { printableLines } from '../../host/cli/output/text.ts';
import { fullTime, relativeTime } from '../../host/cli/output/time.ts';
import type { DeliveryAttempt } from './attempts.ts';
import type { Delivery } from './deliveries.ts';
import type { Endpoint } from './endpoints.ts';

const stateOf = ({ disabledAt, openUntil }: Endpoint): string =>
  disabledAt ? 'disabled' : openUntil ? 'failing' : 'on';
const painted = (text: string, state: string): string =>
  paintState(text, { disabled: 'paused', failing: 'fail', on: 'ok' }[state] ?? '');

export function endpointsTable(endpoints: readonly Endpoint[]): string {
  if (endpoints.length === 0) return 'No webhook endpoints.';
  return table<Endpoint>(
    [
      { title: 'ID', value: (endpoint) => endpoint.id, right: true },
      { title: 'STATE', value: stateOf, paint: (text, endpoint) => painted(text, stateOf(endpoint)) },
      { title: 'URL', value: (endpoint) => endpoint.url, shrinkTo: 24 },
      { title: 'EVENTS', value: (endpoint) => endpoint.eventTypes.join(' '), shrinkTo: 8 },
      { title: 'TENANT', value: (endpoint) => endpoint.tenantId, shrinkTo: 6, leaveOut: 2 },
      { title: 'FAILURES', value: (endpoint) => endpoint.failures || '', right: true, leaveOut: 3 },
      { title: 'DESCRIPTION', value: (endpoint) => endpoint.description, shrinkTo: 8, leaveOut: 4 },
    ],
    endpoints,
    terminalWidth(),
  );
}

export function endpointPage(endpoint: Endpoint, now: Date): string {
  const { disabledAt, openUntil, retryDelays, secrets, publicKeys } = endpoint;
  return facts([
    ['endpoint', endpoint.id],
    ['state', stateOf(endpoint)],
    ['url', endpoint.url],
    ['description', endpoint.description],
    ['tenant', endpoint.tenantId],
    ['events', endpoint.eventTypes.join(' ')],
    ['filter', endpoint.filter.length > 0 ? JSON.stringify(endpoint.filter) : null],
    ['headers', endpoint.headerNames.join(', ') || null],
    ['order', endpoint.ordered ? 'kept for each aggregate' : 'not kept'],
    ['time limit', `${endpoint.timeoutMs} ms`],
    ['attempts', endpoint.maxAttempts],
    ['retry delays', retryDelays ? `${retryDelays.join(', ')} s` : '2, 4, 8, … s'],
    ['failures', endpoint.failures ? `${endpoint.failures} in a row` : null],
    ['waits until', openUntil && fullTime(openUntil, now)],
    ['disabled', disabledAt && `${fullTime(disabledAt, now)}: ${endpoint.disabledReason}`],
    ['added', fullTime(endpoint.createdAt, now)],
    [
      'secrets',
      secrets
        .map(
          ({ xBpcKey, ...secret }) =>
            lifeOf(secret) + (xBpcKey === 'decoded' ? ' (X-BPC-Signature: decoded)' : ''),
        )
        .join('; '),
    ],
    ['public keys', publicKeys.map((key) => `${key.publicKey} ${lifeOf(key)}`).join('; ') || null],
  ]);
}

const lifeOf = ({ createdAt, expiresAt }: { createdAt: string; expiresAt: string | null }): string =>
  `of ${createdAt}${expiresAt ? ` until ${expiresAt}` : ''}`;

export function deliveriesTable(deliveries: readonly Delivery[], now: Date): string {
  if (deliveries.length === 0) return 'No deliveries.';
  return table<Delivery>(
    [
      { title: 'DELIVERY', value: (delivery) => delivery.id },
      {
        title: 'STATE',
        value: (delivery) => delivery.state,
        paint: (text, { state }) => paintState(text, paints[state]),
      },
      { title: 'TRIES', value: (delivery) => delivery.attempts || '', right: true },
      {
        title: 'NEXT',
        value: ({ nextAttemptAt: next }) => next && (next > now ? relativeTime(next, now) : 'now'),
      },
      { title: 'EVENT', value: (delivery) => delivery.eventType, shrinkTo: 10 },
      { title: 'ENDPOINT', value: (delivery) => delivery.endpointId, right: true, leaveOut: 3 },
      { title: 'MADE', value: (delivery) => relativeTime(delivery.createdAt, now), leaveOut: 1 },
      { title: 'ERROR', value: (delivery) => delivery.lastError, shrinkTo: 16, leaveOut: 2 },
    ],
    deliveries,
    terminalWidth(),
  );
}

/** The job states that are painted alike. */
const paints = { PENDING: 'QUEUED', DELIVERED: 'SUCCEEDED', FAILED: 'FAILED' } as const;

export function attemptsTable(attempts: readonly DeliveryAttempt[], now: Date): string {
  if (attempts.length === 0) return 'No deliveries.';
  return table<DeliveryAttempt>(
    [
      { title: 'DELIVERY', value: (attempt) => attempt.deliveryId },
      { title: 'TRY', value: (attempt) => attempt.attempt, right: true },
      {
        title: 'STATUS',
        value: (attempt) => attempt.status,
        paint: (text, { status }) => paintState(text, status),
      },
      { title: 'HTTP', value: (attempt) => attempt.httpStatus, right: true },
      { title: 'EVENT', value: (attempt) => attempt.eventType, shrinkTo: 10 },
      { title: 'ENDPOINT', value: (attempt) => attempt.endpointId, right: true, leaveOut: 3 },
      { title: 'WHEN', value: (attempt) => relativeTime(attempt.attemptedAt, now), leaveOut: 1 },
      { title: 'MS', value: (attempt) => attempt.durationMs, right: true, leaveOut: 4 },
      { title: 'ERROR', value: (attempt) => attempt.error, shrinkTo: 16, leaveOut: 2 },
    ],
    attempts,
    terminalWidth(),
  );
}

export function attemptPages(attempts: readonly DeliveryAttempt[], now: Date): string {
  if (attempts.length === 0) return 'No attempts yet.';
  return attempts
    .map((attempt) => {
      const head = facts([
        ['attempt', attempt.attempt],
        ['status', attempt.status],
        ['delivery', attempt.deliveryId],
        ['event', `${attempt.eventId} (${attempt.eventType})`],
        ['endpoint', attempt.endpointId],
        ['when', fullTime(attempt.attemptedAt, now)],
        ['took', `${attempt.durationMs} ms`],
        ['error', attempt.error],
        ['http status', attempt.httpStatus],
        ...Object.entries(attempt.responseHeaders ?? {}).map(
          ([name, value]) => [`  ${name}`, String(value)] as const,
        ),
      ]);
      return attempt.responseBody ? `${head}\n\n${printableLines(attempt.responseBody)}` : head;
    })
    .join('\n\n');
}
