/**
 * The interface of an app. Everything that the product does in a domain (tag reads, shelf labels, webhooks …) is an app:
 * one folder under `src/apps` and one line in `apps.ts`. Server, command line, configuration, metrics and documentation
 * use this interface and name no app themselves.
 *
 * Every command loads an app's module, so the module only declares. `routes` and `start` import the code that does the
 * work when it is needed.
 */
import type { Command } from 'commander';
import type { Registry } from 'prom-client';
import type { ConfigKeys, ValuesOf } from '../config/key.ts';
import type { Config } from '../config/keys.ts';
import type { Component } from '../engine/database/migrate.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { Worker } from '../engine/jobs/worker.ts';
import type { Logger } from '../engine/logger.ts';
import type { NewSchedule } from '../engine/schedules/schedules.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import type { EventCatalogue, EventType } from '../events/catalogue.ts';
import type { SecretBox } from '../secrets/box.ts';
import type { SealedColumn } from '../secrets/reseal.ts';
import type { CommandFrame } from './cli/session.ts';
import type { Demo } from './demo.ts';
import type { AnyRoute, Caller } from './route.ts';
import type { Moment, Subject, SubjectPage, TenantQueries } from './timeline.ts';

export interface App {
  /** Also the name of its part of `tallyman serve`. */
  readonly name: string;
  /** One line, for `--help` and the documentation. */
  readonly summary: string;
  /** Apps whose tables and modules it uses. They are migrated and started before it. */
  readonly dependsOn?: readonly string[];
  /** Its schema: tables in numbered files, functions apart. */
  readonly component: Component;
  readonly config: ConfigKeys;
  /** Finds settings that do not fit together; returns a message for each problem. */
  readonly contradictions?: (config: Config) => readonly string[];
  /** HTTP statuses of the error codes that its routes throw. */
  readonly errors?: Readonly<Record<string, number>>;
  /** Every kind of job that it runs. */
  readonly kinds?: readonly KindDeclaration[];
  /** What keys of guests can be given to see; the app's routes say what that is. */
  readonly access?: readonly AccessDeclaration[];
  /** The events it emits, with the schema of each payload. */
  readonly events?: readonly EventType[];
  /** Where it keeps sealed secrets, so that they can be sealed anew under another master secret. */
  readonly sealed?: readonly SealedColumn[];
  readonly routes?: (host: RouteHost) => Promise<readonly AnyRoute[]>;
  readonly commands?: (program: Command, frame: CommandFrame) => void;
  /** Registers its metrics; `start` gets what this returns. */
  readonly metrics?: (registry: Registry) => Promise<unknown>;
  /** What it knows about one physical thing, newest first. An empty list for subjects of other apps. */
  readonly timeline?: (on: TenantQueries, subject: Subject, page: SubjectPage) => Promise<readonly Moment[]>;
  /** Subjects whose name or number begins with this text, of those that a key of this role may know. */
  readonly search?: (on: TenantQueries, text: string, role: Caller['role']) => Promise<readonly Subject[]>;
  /** A demo of it, for `npm start`. */
  readonly demo?: () => Promise<Demo>;
  /** Starts the background work. Resolves when it runs; stops what it has started if it rejects. */
  readonly start?: (host: Host, config: Config, metrics: unknown) => Promise<RunningApp>;
}

/** A kind of job, declared so that a test can compare it with the code. */
export interface KindDeclaration {
  readonly name: string;
  /** May be enqueued over the API and by the command line. Default false: internal. */
  readonly public?: boolean;
}

/** What a guest may see. */
export interface AccessDeclaration {
  /** `passports.authority` */
  readonly name: string;
  /** Who gets such a key, for the documentation. */
  readonly summary: string;
}

export const accessOf = (apps: readonly App[]): readonly AccessDeclaration[] =>
  apps.flatMap(({ access }) => access ?? []);

/** What routes can use besides the request. */
export interface RouteHost {
  readonly tallyman: Tallyman;
  readonly config: Config;
  readonly secrets: SecretBox;
  readonly catalogue: EventCatalogue;
}

/** What an app's background work can use. */
export interface Host extends RouteHost {
  readonly logger: Logger;
  /** Runs a worker with these kinds until the app stops; its metrics are counted. */
  run(options: { readonly kinds: readonly AnyKind[]; readonly concurrency?: number }): Promise<Worker>;
  /** Counts the metrics of a worker that the app runs itself. */
  observe(worker: Worker): void;
  schedule(schedule: NewSchedule): Promise<void>;
  /** Notes a call that the app has refused on a port of its own, beside those that the API refuses. Does not wait. */
  audit(refusal: RefusedCall): void;
  /** Runs when the app stops, in reverse order of registration. */
  onStop(stop: () => Promise<void>): void;
}

/** A line of the audit trail. */
export interface RefusedCall {
  readonly tenantId: string;
  /** Who called, as far as that is known. */
  readonly actor: string;
  /** `boundary.append` */
  readonly action: string;
  readonly resource: string | null;
  /** As HTTP has it: 401, 403. */
  readonly status: number;
  readonly code: string;
  readonly address: string | null;
}

export interface RunningApp {
  /** A short summary of what runs, for the lines that `tallyman serve` prints. */
  readonly summary: string;
  /** External services that it needs; `trouble` says why one is down. */
  health?(): readonly Health[];
}

export interface Health {
  readonly name: string;
  readonly trouble: string | undefined;
}

/** The same with typed configuration and metrics, which the list of apps does not need. */
export interface AppDefinition<K extends ConfigKeys, M>
  extends Omit<App, 'config' | 'metrics' | 'start' | 'contradictions'> {
  readonly config: K;
  readonly contradictions?: (config: ValuesOf<K>) => readonly string[];
  readonly metrics?: (registry: Registry) => Promise<M>;
  readonly start?: (host: Host, config: ValuesOf<K>, metrics: M) => Promise<RunningApp>;
}

export function defineApp<const K extends ConfigKeys, M = undefined>(definition: AppDefinition<K, M>): App {
  return definition as unknown as App;
}

/** The values of some keys, already checked by `loadConfig`. */
export const settingsOf = <K extends ConfigKeys>(_keys: K, config: Config): ValuesOf<K> =>
  config as unknown as ValuesOf<K>;
