import type { IntakeCounters } from './intake.ts';
import type { ProtocolVersion, Welcome } from './packets.ts';

/**
 *   stopped ──start──> connecting ──ok──> connected ──lost──> waiting ──> connecting …
 *                                             └──stop──> stopping ──> stopped
 *   disabled: start does nothing.   failed: lost, and autoReconnect is off.
 */
export type MqttState =
  | 'disabled'
  | 'stopped'
  | 'connecting'
  | 'connected'
  | 'waiting'
  | 'stopping'
  | 'failed';

export interface MqttCounters extends Readonly<IntakeCounters> {
  /** Connections after the first. */
  readonly reconnects: number;
  /** Received, not acknowledged yet. */
  readonly inFlight: number;
  readonly bytesInFlight: number;
  /** How long the oldest of them has been waiting for its commit. */
  readonly oldestInFlightSeconds: number;
  /** Reading is paused, because too much waits for its commit. */
  readonly isPaused: boolean;
  /** Commits that failed since the last one that succeeded. */
  readonly rejectedInARow: number;
}

export interface MqttSubscription {
  readonly topic: string;
  /** What was sent to the broker: with the group, where there is one. */
  readonly effective: string;
  /** The QoS granted, or why it was refused. */
  readonly granted: number | string;
}

export interface MqttStatus {
  readonly state: MqttState;
  readonly since: Date;
  /** Connected, and every subscription granted. */
  readonly ready: boolean;
  /** Why it is not connected, in words. */
  readonly reason?: string;
  readonly broker: string;
  readonly clientId: string;
  readonly environmentId: string;
  readonly protocol?: '5' | '3.1.1';
  readonly welcome?: Welcome;
  readonly subscriptions: readonly MqttSubscription[];
  readonly counters: MqttCounters;
}

export const protocolName = (version: ProtocolVersion): '5' | '3.1.1' => (version === 5 ? '5' : '3.1.1');
