import { Gauge, type Registry } from 'prom-client';

/** How events get on, for Prometheus. */
export interface EventObserver {
  saw(state: EventState): void;
}

export interface EventState {
  /** How long the oldest transaction that holds up readers has been open; 0: there is none. */
  readonly horizonAgeSeconds: number;
  readonly listeners: readonly {
    readonly listener: string;
    /** The age of the oldest event that it has not handled. */
    readonly seconds: number;
    readonly setAside: number;
  }[];
  readonly heldBack: number;
}

export function exposeEvents(registry: Registry): EventObserver {
  const registers = [registry];
  const horizon = new Gauge({
    name: 'tallyman_events_horizon_age_seconds',
    help: 'How long the oldest open transaction that has emitted events has been open. Events of all tenants that were written after its first one wait for it.',
    registers,
  });
  const lag = new Gauge({
    name: 'tallyman_events_listener_lag_seconds',
    help: 'Age of the oldest event that a listener has not handled.',
    labelNames: ['listener'],
    registers,
  });
  const setAside = new Gauge({
    name: 'tallyman_events_set_aside',
    help: 'Events that a listener could not handle and tries again later.',
    labelNames: ['listener'],
    registers,
  });
  const heldBack = new Gauge({
    name: 'tallyman_webhooks_held_back',
    help: 'Deliveries that could not be made yet because another open transaction holds their lane or endpoint.',
    registers,
  });
  return {
    saw: (state) => {
      horizon.set(state.horizonAgeSeconds);
      heldBack.set(state.heldBack);
      for (const { listener, seconds, setAside: count } of state.listeners) {
        lag.set({ listener }, seconds);
        setAside.set({ listener }, count);
      }
    },
  };
}
