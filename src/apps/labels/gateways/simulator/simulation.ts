import { Tokens } from './aims.ts';
import { SimulatedLabels, statusOf } from './labels.ts';
import { type SimulatorSettings, type SimulatorSettingsInput, simulatorSettings } from './settings.ts';

export interface SimulatorCounts {
  readonly calls: number;
  readonly tokens: number;
  readonly accepted: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly labels: number;
  readonly shown: number;
  readonly processing: number;
  readonly timedOut: number;
}

/** All that the simulator knows. */
export class Simulation {
  readonly labels: SimulatedLabels;
  readonly tokens = new Tokens();
  readonly #faults = new Map<string, number>();
  #settings: SimulatorSettings;
  #calls = 0;

  constructor(seed: number, settings: SimulatorSettingsInput) {
    this.labels = new SimulatedLabels(seed);
    this.#settings = simulatorSettings.parse(settings);
  }

  get settings(): SimulatorSettings {
    return this.#settings;
  }

  /** What is not named stays as it is. */
  change(settings: Partial<SimulatorSettingsInput>): void {
    this.#settings = simulatorSettings.parse({ ...this.#settings, ...settings });
  }

  /** Counts a call, and returns its number. */
  called(): number {
    this.#calls += 1;
    return this.#calls;
  }

  wentWrong(kind: string): void {
    this.#faults.set(kind, (this.#faults.get(kind) ?? 0) + 1);
  }

  counts(): SimulatorCounts {
    const now = Date.now();
    const statuses = this.labels.all().map((label) => statusOf(label, now));
    const count = (wanted: string) => statuses.filter((status) => status === wanted).length;
    return {
      calls: this.#calls,
      tokens: this.tokens.given,
      accepted: this.labels.accepted,
      faults: Object.fromEntries(this.#faults),
      labels: this.labels.size,
      shown: count('SUCCESS'),
      processing: count('PROCESSING'),
      timedOut: count('TIMEOUT'),
    };
  }
}
