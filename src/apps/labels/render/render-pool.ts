/**
 * Threads that make images. Templates come from tenants: whatever one of them makes the renderer do, the event loop is free,
 * memory is limited, and a thread that works too long is ended.
 *
 * What a thread cannot be ended in is the renderer itself, which is native code: its work is bounded by what a template may
 * hold (svg-rules.ts). Until it returns, the thread counts as busy for its tenant.
 *
 * States of a thread: starting → idle ⇄ busy → ending → gone.
 */
import { availableParallelism } from 'node:os';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { closedError, TallymanError } from '../../../engine/errors.ts';
import { TemplateError, TooCostlyError } from './errors.ts';
import type { LabelImage } from './image.ts';
import type { Panel } from './panel.ts';

export interface RenderTask {
  readonly svg: string;
  readonly values: Readonly<Record<string, string>>;
  readonly panel: Panel;
  /** `check`: fills the template and draws nothing. */
  readonly only?: 'check';
}

export interface RenderAnswer {
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
  readonly threads?: number;
  /** How long one image may take. Default 10 s, a thousand times what it does. */
  readonly timeMs?: number;
  /** Of the JavaScript heap of each thread. Default 256. */
  readonly memoryMb?: number;
  /** Images of one tenant that wait at most. Default 500. */
  readonly mostWaiting?: number;
}

interface Job {
  readonly tenantId: string;
  readonly task: RenderTask;
  readonly resolve: (image: LabelImage | undefined) => void;
  readonly reject: (error: unknown) => void;
}

interface Thread {
  readonly worker: Worker;
  isReady: boolean;
  isEnding: boolean;
  job: Job | undefined;
  /** Whose job it is, also while the thread is being ended. */
  tenantId: string | undefined;
  /** How long the job has run, in ticks: a process that is stopped for a while does not tick. */
  ticks: number;
}

const tickMs = 100;
/** What one image leaves behind fits into the processor's cache: with 24 MB an image takes a fifth more processor time. */
const youngMb = 8;
/** The sources run as they are, and so does what is built of them. */
const script = new URL(`./render-thread${extname(import.meta.url)}`, import.meta.url);

export class RenderPool {
  readonly #threads = new Set<Thread>();
  readonly #most: number;
  readonly #mostOfTenant: number;
  readonly #mostTicks: number;
  readonly #memoryMb: number;
  readonly #mostWaiting: number;
  /** By tenant. The order of the tenants is the order of their turns. */
  readonly #waiting = new Map<string, Job[]>();
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: RenderPoolOptions = {}) {
    const { threads = Math.min(4, availableParallelism()), timeMs = 10_000 } = options;
    this.#mostOfTenant = threads;
    this.#most = threads + 1;
    this.#mostTicks = Math.ceil(timeMs / tickMs);
    this.#memoryMb = options.memoryMb ?? 256;
    this.#mostWaiting = options.mostWaiting ?? 500;
  }

  /** Threads that exist; they are started when there is work for them. */
  get size(): number {
    return this.#threads.size;
  }

  /** Images that wait for a thread. */
  get waiting(): number {
    let waiting = 0;
    for (const jobs of this.#waiting.values()) waiting += jobs.length;
    return waiting;
  }

  async render(tenantId: string, task: RenderTask): Promise<LabelImage> {
    const image = await this.#add(tenantId, task);
    if (!image) throw new Error('a thread has made no image');
    return image;
  }

  /** Throws what `render` would throw, without drawing. */
  async check(tenantId: string, task: RenderTask): Promise<void> {
    await this.#add(tenantId, { ...task, only: 'check' });
  }

  /** Ends all threads; what is under way is given up. */
  async close(): Promise<void> {
    const threads = [...this.#threads];
    const waiting = [...this.#waiting.values()].flat();
    this.#waiting.clear();
    this.#stopTicking();
    for (const { reject } of waiting) reject(closedError());
    await Promise.all(threads.map(({ worker }) => worker.terminate()));
  }

  #add(tenantId: string, task: RenderTask): Promise<LabelImage | undefined> {
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
      const thread = this.#freeThread();
      if (!thread) return;
      const waiting = this.#waiting.get(tenantId) ?? [];
      const job = waiting.shift();
      this.#waiting.delete(tenantId);
      // To the end: every other tenant has its turn first.
      if (waiting.length > 0) this.#waiting.set(tenantId, waiting);
      if (job) this.#assign(thread, job);
    }
  }

  #busyFor(tenantId: string): number {
    let busy = 0;
    for (const thread of this.#threads) if (thread.tenantId === tenantId) busy += 1;
    return busy;
  }

  #freeThread(): Thread | undefined {
    for (const thread of this.#threads) if (thread.tenantId === undefined && !thread.isEnding) return thread;
    return this.#threads.size < this.#most ? this.#start() : undefined;
  }

  #start(): Thread {
    const worker = new Worker(script, {
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: this.#memoryMb, maxYoungGenerationSizeMb: youngMb },
    });
    const thread: Thread = {
      worker,
      isReady: false,
      isEnding: false,
      job: undefined,
      tenantId: undefined,
      ticks: 0,
    };
    this.#threads.add(thread);
    // Only work under way keeps the process alive.
    worker.unref();
    worker.on('message', (answer: 'ready' | RenderAnswer) => {
      if (answer === 'ready') thread.isReady = true;
      else this.#answered(thread, answer);
    });
    worker.on('error', (error: NodeJS.ErrnoException) => {
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      this.#giveUp(thread, isMemory ? new TooCostlyError(`more than ${this.#memoryMb} MB`) : error);
    });
    worker.on('exit', () => {
      this.#giveUp(thread, new Error('a thread that makes images has ended'));
      this.#threads.delete(thread);
      this.#dispatch();
    });
    return thread;
  }

  #assign(thread: Thread, job: Job): void {
    thread.job = job;
    thread.tenantId = job.tenantId;
    thread.ticks = 0;
    thread.worker.ref();
    thread.worker.postMessage(job.task);
    this.#ticker ??= setInterval(() => this.#tick(), tickMs).unref();
  }

  #answered(thread: Thread, { image, error }: RenderAnswer): void {
    const { job } = thread;
    if (!job) return;
    thread.job = undefined;
    thread.tenantId = undefined;
    thread.worker.unref();
    if (error) job.reject(errorOf(error));
    else
      job.resolve(image && { png: Buffer.from(image.png.buffer), hash: image.hash, panel: job.task.panel });
    this.#dispatch();
  }

  #giveUp(thread: Thread, error: Error): void {
    thread.isEnding = true;
    thread.job?.reject(error);
    thread.job = undefined;
  }

  #tick(): void {
    let isBusy = false;
    for (const thread of this.#threads) {
      if (!thread.job) continue;
      isBusy = true;
      if (thread.isReady) thread.ticks += 1;
      if (thread.ticks <= this.#mostTicks) continue;
      this.#giveUp(thread, new TooCostlyError(`longer than ${(this.#mostTicks * tickMs) / 1000} s`));
      void thread.worker.terminate();
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
