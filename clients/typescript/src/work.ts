import type { Client } from "./client.js";
import { temporary, WeirError } from "./errors.js";
import type { Job } from "./types.js";
import { link, now, pause, sleep } from "./wait.js";

/** Does a job. Throwing, or a promise that rejects, gives the job back. */
export type Handler<T = unknown> = (job: Job<T>, context: JobContext) => unknown;

/** What a handler gets besides its job. */
export interface JobContext {
  /** Aborts when the lease is lost, with a WeirError `lease_lost`: somebody else may have the job. An abort of work leaves it alone. */
  signal: AbortSignal;
}

/** What work takes. */
export interface WorkOptions<T = unknown> {
  /** How many handlers run at a time, 1 to 1000. Default: 1. */
  concurrency?: number;
  /** For how long a job is leased, in ms, 100 to 86400000; it is extended at a third of that. So long others wait for the jobs of a worker that dies. Default: 30000. */
  leaseMs?: number;
  /** How long a claim waits on the server, in ms, up to 30000. Default: 30000. */
  waitMs?: number;
  /** How long nobody gets a job whose handler threw, in ms. Default: a second, doubled with each delivery up to a minute. */
  retryDelayMs?: number | ((job: Job<T>) => number);
  /** Stops the work: what is held is finished, nothing more is taken. */
  signal?: AbortSignal;
  /** Is told what a handler threw, of each lost lease, and of calls that failed and are tried again. Default: console.error. */
  onError?: (error: unknown, job?: Job<T>) => void;
}

/** What work has done. */
export interface WorkSummary {
  /** Jobs that were done and acked. */
  done: number;
  /** Jobs that were given back because their handler threw. */
  failed: number;
  /** Jobs whose lease was lost before they were settled; they come again. */
  lost: number;
}

/** A job that a handler has. */
interface Running<T> {
  job: Job<T>;
  stop: AbortController;
  /** When the lease has ended for certain, by now(). */
  ends: number;
  settling: boolean;
}

export async function work<T>(client: Client, topic: string, handler: Handler<T>, options: WorkOptions<T>): Promise<WorkSummary> {
  const { concurrency = 1 } = options;
  if (!(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= 1000)) {
    throw new RangeError(`concurrency is 1 to 1000, not ${concurrency}`);
  }
  return new Worker(client, topic, handler, options, concurrency).run();
}

class Worker<T> {
  readonly #summary: WorkSummary = { done: 0, failed: 0, lost: 0 };
  readonly #held = new Map<string, Running<T>>(); // by lease id
  readonly #handlers = new Set<Promise<void>>();
  readonly #leaseMs: number;
  readonly #waitMs: number;
  #acks: { running: Running<T>; done: (skipped: boolean) => void; failed: (e: unknown) => void }[] = [];
  #acking = false;

  constructor(
    private readonly client: Client,
    private readonly topic: string,
    private readonly handler: Handler<T>,
    private readonly options: WorkOptions<T>,
    private readonly concurrency: number,
  ) {
    this.#leaseMs = options.leaseMs ?? 30_000;
    this.#waitMs = options.waitMs ?? 30_000;
  }

  async run(): Promise<WorkSummary> {
    const end = new AbortController();
    const beat = this.#beat(end.signal);
    try {
      await this.#claims();
    } finally {
      while (this.#handlers.size > 0) {
        await Promise.race(this.#handlers);
      }
      end.abort();
      await beat;
    }
    return this.#summary;
  }

  /** Claims jobs and starts handlers until the signal aborts. */
  async #claims(): Promise<void> {
    const { signal } = this.options;
    for (let failures = 0; !signal?.aborted; ) {
      if (this.#handlers.size >= this.concurrency) {
        await this.#oneIsDone();
        continue;
      }
      const begin = now();
      let wait: number;
      try {
        const jobs = await this.client.claim<T>(this.topic, {
          max: this.concurrency - this.#handlers.size,
          leaseMs: this.#leaseMs,
          waitMs: this.#waitMs,
          retryMs: 0,
          signal,
        });
        failures = 0;
        jobs.forEach((job) => this.#start(job));
        // A server that is stopping, or too old to wait, answers at once.
        wait = jobs.length > 0 ? 0 : Math.max(begin + 200 + Math.random() * 100 - now(), 0);
      } catch (e) {
        if (signal?.aborted) {
          return;
        }
        if (!temporary(e)) {
          throw e;
        }
        this.#report(e);
        wait = pause(++failures, e.retryAfterMs);
      }
      if (wait > 0) {
        await sleep(wait, signal).catch(() => {}); // an abort ends the loop
      }
    }
  }

  /** Waits until a handler is done, or the signal aborts. */
  async #oneIsDone(): Promise<void> {
    const stop = new AbortController();
    const unlink = link(this.options.signal, stop);
    const aborted = new Promise<void>((resolve) => {
      stop.signal.addEventListener("abort", () => resolve());
      if (stop.signal.aborted) {
        resolve();
      }
    });
    await Promise.race([...this.#handlers, aborted]);
    unlink();
  }

  #start(job: Job<T>): void {
    const running: Running<T> = { job, stop: new AbortController(), ends: now() + this.#leaseMs, settling: false };
    this.#held.set(job.leaseId, running);
    const all = this.#do(running).finally(() => {
      this.#held.delete(job.leaseId);
      this.#handlers.delete(all);
    });
    this.#handlers.add(all);
  }

  /** Runs the handler of a job and settles the job. It never rejects. */
  async #do(running: Running<T>): Promise<void> {
    const { job, stop } = running;
    let failed = false;
    try {
      await this.handler(job, { signal: stop.signal });
    } catch (e) {
      failed = true;
      if (!stop.signal.aborted) {
        this.#report(e, job);
      }
    }
    running.settling = true;
    if (stop.signal.aborted) {
      this.#summary.lost++;
      return;
    }
    try {
      const skipped = failed ? await this.#nack(job) : await this.#ack(running);
      if (skipped) {
        throw leaseLost(job, failed ? "failed" : "was done");
      }
      this.#summary[failed ? "failed" : "done"]++;
    } catch (e) {
      this.#summary.lost++;
      this.#report(e, job);
    }
  }

  async #nack(job: Job<T>): Promise<boolean> {
    const { retryDelayMs = (j: Job<T>) => Math.min(1000 * 2 ** Math.min(j.deliveries - 1, 30), 60_000) } = this.options;
    const delayMs = Math.round(typeof retryDelayMs === "number" ? retryDelayMs : retryDelayMs(job));
    const { skipped } = await this.client.nack(this.topic, job, { delayMs, retryMs: this.#leaseMs });
    return skipped.length > 0;
  }

  /** Acks a job, together with those that are done in the same turn, or while another ack is on its way. */
  #ack(running: Running<T>): Promise<boolean> {
    return new Promise((done, failed) => {
      this.#acks.push({ running, done, failed });
      if (!this.#acking) {
        void this.#flush();
      }
    });
  }

  async #flush(): Promise<void> {
    this.#acking = true;
    await Promise.resolve(); // the other handlers that are done by now come into the same call
    while (this.#acks.length > 0) {
      const batch = this.#acks;
      this.#acks = [];
      try {
        const { skipped } = await this.client.ack(this.topic, batch.map((a) => a.running.job), { retryMs: this.#leaseMs });
        const not = new Set(skipped.map(String));
        batch.forEach((a) => a.done(not.has(String(a.running.job.seq))));
      } catch (e) {
        batch.forEach((a) => a.failed(e));
      }
    }
    this.#acking = false;
  }

  /** Extends the leases of all that is held, until end aborts. */
  async #beat(end: AbortSignal): Promise<void> {
    const every = this.#leaseMs / 3;
    for (;;) {
      try {
        await sleep(every, end);
      } catch {
        return;
      }
      const held = [...this.#held.values()].filter((r) => !r.stop.signal.aborted);
      if (held.length === 0) {
        continue;
      }
      const sent = now();
      try {
        const { skipped } = await this.client.extend(this.topic, held.map((r) => r.job), { leaseMs: this.#leaseMs, retryMs: every, signal: end });
        const not = new Set(skipped.map(String));
        for (const r of held) {
          if (not.has(String(r.job.seq))) {
            this.#lose(r);
          } else {
            r.ends = sent + this.#leaseMs;
          }
        }
      } catch (e) {
        if (end.aborted) {
          return;
        }
        this.#report(e);
        held.filter((r) => now() >= r.ends).forEach((r) => this.#lose(r));
      }
    }
  }

  /** Tells a handler that its job may be somebody else's. One that is being settled will be told by the answer. */
  #lose(running: Running<T>): void {
    if (running.settling) {
      return;
    }
    const e = leaseLost(running.job, "is still running");
    running.stop.abort(e);
    this.#report(e, running.job);
  }

  #report(e: unknown, job?: Job<T>): void {
    const { onError = (error: unknown) => console.error(error) } = this.options;
    try {
      onError(e, job);
    } catch {
      // somebody else's mistake must not stop the work
    }
  }
}

function leaseLost(job: Job, what: string): WeirError {
  return new WeirError("lease_lost", 0, `job ${job.seq} ${what}, but its lease has ended; it comes again`);
}
