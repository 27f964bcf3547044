/**
 * Processes that make images. Templates come from tenants: whatever one of them makes the renderer do, the event loop is free,
 * memory is limited, and a process that works too long is killed. Not threads: resvg is native code, and a thread
 * cannot be ended within it. 16 KB of SVG keep it busy for more than 20 s (an image of one pixel, drawn large and often).
 *
 * States of a process: starting → idle ⇄ busy → ending → gone.
 */
import { type ChildProcess, fork } from 'node:child_process';
import type { Socket } from 'node:net';
import { availableParallelism, setPriority } from 'node:os';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { closedError, TallymanError } from '../../../engine/errors.ts';
import { TemplateError, TooCostlyError } from './errors.ts';
import type { LabelImage } from './image.ts';
import type { Panel } from './panel.ts';
import type { Template } from './template.ts';

export interface RenderTask {
  readonly svg: string;
  readonly values: Readonly<Record<string, string>>;
  readonly panel: Panel;
  /** `read`: parses the template alone. `check`: fills it as well, and draws nothing. */
  readonly only?: 'read' | 'check';
}

/** What a template asks for. */
export type TemplateFacts = Pick<Template, 'placeholders' | 'width' | 'height'>;

export interface RenderAnswer {
  readonly template?: TemplateFacts;
  readonly image?: { readonly png: Uint8Array; readonly hash: string };
  readonly error?: {
    readonly isTemplate: boolean;
    readonly code: string | undefined;
    readonly message: string;
    readonly details: Readonly<Record<string, unknown>> | undefined;
  };
}

export interface RenderPoolOptions {
  /** For one tenant; another one finds one more. Default: one for each processor, up to 4. */
  readonly processes?: number;
  /** How long one image may take. Default 2 s, two hundred times what it does. */
  readonly timeMs?: number;
  /** Of the JavaScript heap of each process; what the renderer takes besides is bounded by svg-rules.ts. Default 256. */
  readonly memoryMb?: number;
  /** Images of one tenant that wait at most. Default 500. */
  readonly mostWaiting?: number;
}

interface Made {
  readonly image?: LabelImage;
  readonly template?: TemplateFacts;
}

interface Job {
  readonly tenantId: string;
  readonly task: RenderTask;
  readonly resolve: (made: Made) => void;
  readonly reject: (error: unknown) => void;
}

interface Renderer {
  readonly child: ChildProcess;
  isReady: boolean;
  isEnding: boolean;
  job: Job | undefined;
  /** Whose job it is, also while the process is being ended. */
  tenantId: string | undefined;
  /** How long the job has run, in ticks: a process that is stopped for a while does not tick. */
  ticks: number;
}

const noPanel: Panel = { width: 0, height: 0, palette: 'bw' };
const tickMs = 100;
/** What one image leaves behind fits into the processor's cache: with 24 MB in all an image takes a fifth more processor time. */
const semiSpaceMb = 2;
/** The API and other tenants come first when the processors are busy; images can wait. */
const niceness = 5;
/** What V8 writes before it ends a process whose heap is full. */
const outOfMemory = /heap out of memory|Reached heap limit/;
/** What a process writes as it ends is kept up to here: the reason comes first, and pages about the heap behind it. */
const mostWritten = 4096;
/** The sources run as they are, and so does what is built of them. */
const script = fileURLToPath(new URL(`./render-process${extname(import.meta.url)}`, import.meta.url));

export class RenderPool {
  readonly #renderers = new Set<Renderer>();
  readonly #most: number;
  readonly #mostOfTenant: number;
  readonly #mostTicks: number;
  readonly #memoryMb: number;
  readonly #mostWaiting: number;
  /** By tenant. The order of the tenants is the order of their turns. */
  readonly #waiting = new Map<string, Job[]>();
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: RenderPoolOptions = {}) {
    const { processes = Math.min(4, availableParallelism()), timeMs = 2_000 } = options;
    this.#mostOfTenant = processes;
    this.#most = processes + 1;
    this.#mostTicks = Math.ceil(timeMs / tickMs);
    this.#memoryMb = options.memoryMb ?? 256;
    this.#mostWaiting = options.mostWaiting ?? 500;
  }

  /** Processes that exist; they are started when there is work for them. */
  get size(): number {
    return this.#renderers.size;
  }

  /** Images that wait for a renderer. */
  get waiting(): number {
    let waiting = 0;
    for (const jobs of this.#waiting.values()) waiting += jobs.length;
    return waiting;
  }

  async render(tenantId: string, task: RenderTask): Promise<LabelImage> {
    const { image } = await this.#add(tenantId, task);
    if (!image) throw new Error('a process has made no image');
    return image;
  }

  /** Parses a template: its author is a tenant, so that this process does not. Throws TemplateError for an invalid one. */
  async read(tenantId: string, svg: string): Promise<TemplateFacts> {
    const { template } = await this.#add(tenantId, { svg, values: {}, panel: noPanel, only: 'read' });
    if (!template) throw new Error('a process has read no template');
    return template;
  }

  /** Throws what `render` would throw, without drawing. */
  async check(tenantId: string, task: RenderTask): Promise<void> {
    await this.#add(tenantId, { ...task, only: 'check' });
  }

  /** Ends all processes; what is under way is given up. */
  async close(): Promise<void> {
    const renderers = [...this.#renderers];
    const waiting = [...this.#waiting.values()].flat();
    this.#waiting.clear();
    this.#stopTicking();
    for (const { reject } of waiting) reject(closedError());
    await Promise.all(renderers.map(ended));
  }

  #add(tenantId: string, task: RenderTask): Promise<Made> {
    return new Promise((resolve, reject) => {
      const waiting = this.#waiting.get(tenantId) ?? [];
      if (waiting.length >= this.#mostWaiting)
        return reject(
          new TallymanError(
            'LABELS_BUSY',
            `${waiting.length} images of this tenant wait to be made; try again`,
          ),
        );
      waiting.push({ tenantId, task, resolve, reject });
      this.#waiting.set(tenantId, waiting);
      this.#dispatch();
    });
  }

  #dispatch(): void {
    for (;;) {
      const tenantId = [...this.#waiting.keys()].find((tenant) => this.#busyFor(tenant) < this.#mostOfTenant);
      if (tenantId === undefined) return;
      const renderer = this.#freeRenderer();
      if (!renderer) return;
      const waiting = this.#waiting.get(tenantId) ?? [];
      const job = waiting.shift();
      this.#waiting.delete(tenantId);
      // To the end: every other tenant has its turn first.
      if (waiting.length > 0) this.#waiting.set(tenantId, waiting);
      if (job) this.#assign(renderer, job);
    }
  }

  #busyFor(tenantId: string): number {
    let busy = 0;
    for (const renderer of this.#renderers) if (renderer.tenantId === tenantId) busy += 1;
    return busy;
  }

  #freeRenderer(): Renderer | undefined {
    for (const renderer of this.#renderers)
      if (renderer.tenantId === undefined && !renderer.isEnding) return renderer;
    return this.#renderers.size < this.#most ? this.#start() : undefined;
  }

  #start(): Renderer {
    const child = fork(script, {
      // Nothing of the configuration, above all no secrets.
      env: {},
      execArgv: [`--max-old-space-size=${this.#memoryMb}`, `--max-semi-space-size=${semiSpaceMb}`],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
    });
    const renderer: Renderer = {
      child,
      isReady: false,
      isEnding: false,
      job: undefined,
      tenantId: undefined,
      ticks: 0,
    };
    this.#renderers.add(renderer);
    // Only work under way keeps this process alive.
    release(child);
    child.on('message', (answer: 'ready' | RenderAnswer) => {
      if (answer !== 'ready') return this.#answered(renderer, answer);
      renderer.isReady = true;
      yieldTo(child);
    });
    // It could not be started, or a message could not be sent.
    child.on('error', (error) => {
      this.#giveUp(renderer, error);
      child.kill('SIGKILL');
      if (child.pid === undefined) this.#gone(renderer);
    });
    let written = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      if (written.length < mostWritten) written += text;
    });
    child.on('close', (code, signal) => {
      this.#giveUp(
        renderer,
        outOfMemory.test(written)
          ? new TooCostlyError(`more than ${this.#memoryMb} MB`)
          : new Error(
              `a process that makes images has ended (${signal ?? `exit code ${code}`})${written && `: ${written.slice(0, mostWritten).trim()}`}`,
            ),
      );
      this.#gone(renderer);
    });
    return renderer;
  }

  #gone(renderer: Renderer): void {
    this.#renderers.delete(renderer);
    this.#dispatch();
  }

  #assign(renderer: Renderer, job: Job): void {
    renderer.job = job;
    renderer.tenantId = job.tenantId;
    renderer.ticks = 0;
    renderer.child.ref();
    renderer.child.channel?.ref();
    renderer.child.send(job.task);
    this.#ticker ??= setInterval(() => this.#tick(), tickMs).unref();
  }

  #answered(renderer: Renderer, { image, template, error }: RenderAnswer): void {
    const { job } = renderer;
    if (!job) return;
    renderer.job = undefined;
    renderer.tenantId = undefined;
    release(renderer.child);
    if (error) job.reject(errorOf(error));
    else
      job.resolve({
        ...(image && { image: { png: Buffer.from(image.png), hash: image.hash, panel: job.task.panel } }),
        ...(template && { template }),
      });
    this.#dispatch();
  }

  #giveUp(renderer: Renderer, error: Error): void {
    renderer.isEnding = true;
    renderer.job?.reject(error);
    renderer.job = undefined;
  }

  #tick(): void {
    let isBusy = false;
    for (const renderer of this.#renderers) {
      if (!renderer.job) continue;
      isBusy = true;
      if (renderer.isReady) renderer.ticks += 1;
      if (renderer.ticks <= this.#mostTicks) continue;
      this.#giveUp(renderer, new TooCostlyError(`longer than ${(this.#mostTicks * tickMs) / 1000} s`));
      renderer.child.kill('SIGKILL');
    }
    if (!isBusy) this.#stopTicking();
  }

  #stopTicking(): void {
    clearInterval(this.#ticker);
    this.#ticker = undefined;
  }
}

function errorOf({ isTemplate, code, message, details }: NonNullable<RenderAnswer['error']>): Error {
  if (isTemplate) return TemplateError.reported(message, details);
  return code === undefined
    ? new Error(message)
    : new TallymanError(code, message, { ...(details && { details }) });
}

function release(child: ChildProcess): void {
  child.unref();
  child.channel?.unref();
  // A pipe, which can be unreferenced as a socket can.
  (child.stderr as Socket | null)?.unref();
}

/** Where this is not allowed, images have the priority of everything else. */
function yieldTo({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) setPriority(pid, niceness);
  } catch {}
}

function ended({ child }: Renderer): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return resolve();
    child.ref();
    child.once('exit', () => resolve());
    child.kill('SIGKILL');
  });
}
