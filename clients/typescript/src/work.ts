import type { Client } from "./client.js";
import { temporary, WeirError } from "./errors.js";
import type { Job, Seq, SettleResult } from "./types.js";
import { now, pause, sleep } from "./wait.js";

/** Does a job. Throwing, or a promise that rejects, gives the job back. */
export type Handler<T = unknown> = (job: Job<T>, context: JobContext) => unknown;

/** What a handler gets besides its job. */
export interface JobContext {
  /** Aborts when the lease is lost, with a WeirError `lease_lost`: somebody else may have the job. An abort of work leaves it alone. A getter: `{ ...context }` is without it. */
  readonly signal: AbortSignal;
}

/** What work takes. */
export interface WorkOptions<T = unknown> {
  /** How many handlers run at a time, 1 to 1000; so many jobs are in memory, and none is taken ahead, in claims of up to 8 MiB. Default: 1. */
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

/** The longest delay of a nack; the server makes it of more. */
const longestDelayMs = 86_400_000;

/** What work has done. */
export interface WorkSummary {
  /** Jobs that were done and acked. */
  done: number;
  /** Jobs that were given back because their handler threw. */
  failed: number;
  /** Jobs whose lease was lost before they were settled; they come again. */
  lost: number;
}

/**
 * A job that a handler has, and that handler's context: an object of its own with a getter, for each job,
 * takes longer than all else here.
 */
class Running<T> implements JobContext {
  settling = false;
  #stop: AbortController | undefined; // made when somebody asks: most handlers never do
  #lost: WeirError | undefined;

  constructor(
    readonly job: Job<T>,
    /** When the lease has ended for certain, by now(). */
    public ends: number,
  ) {}

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  get signal(): AbortSignal {
    if (!this.#stop) {
      this.#stop = new AbortController();
      if (this.#lost) {
        this.#stop.abort(this.#lost);
      }
    }
    return this.#stop.signal;
  }

  lose(e: WeirError): void {
    this.#lost = e;
    this.#stop?.abort(e);
  }
}

export async function work<T>(client: Client, topic: string, handler: Handler<T>, options: WorkOptions<T>): Promise<WorkSummary> {
  const { concurrency = 1, leaseMs = 30_000 } = options;
  if (typeof handler !== "function") {
    throw new TypeError("the handler of work is a function"); // or every job would become a dead letter
  }
  if (!(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= 1000)) {
    throw new RangeError(`concurrency is 1 to 1000, not ${concurrency}`);
  }
  if (!(leaseMs >= 100 && leaseMs <= 86_400_000)) {
    throw new RangeError(`leaseMs is 100 to 86400000, not ${leaseMs}`);
  }
  return new Worker(client, topic, handler, options, concurrency).run();
}

class Worker<T> {
  readonly #summary: WorkSummary = { done: 0, failed: 0, lost: 0 };
  readonly #held = new Map<string, Running<T>>(); // by lease id
  readonly #newest = new Map<Seq, Running<T>>(); // what is held of each job by the latest of its leases
  readonly #leaseMs: number;
  readonly #waitMs: number;
  #most = 1000; // jobs in one claim
  #acks: Running<T>[] = [];
  #acking = false;
  #wake = () => {}; // ends what waits for a change

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
    const wake = () => this.#wake();
    this.options.signal?.addEventListener("abort", wake);
    try {
      await this.#claims();
    } finally {
      this.options.signal?.removeEventListener("abort", wake);
      while (this.#held.size > 0) {
        await this.#change();
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
      if (this.#held.size >= this.concurrency) {
        await this.#change();
        continue;
      }
      const begin = now();
      const max = Math.min(this.concurrency - this.#held.size, this.#most);
      let wait: number;
      try {
        const jobs = await this.client.claim<T>(this.topic, {
          max,
          leaseMs: this.#leaseMs,
          waitMs: this.#waitMs,
          retryMs: 0,
          signal,
        });
        failures = 0;
        const ends = now() + this.#leaseMs;
        if (jobs.length === max && now() - begin <= Math.min(this.#leaseMs, 30_000) / 4) {
          this.#most = Math.min(2 * this.#most, 1000);
        }
        jobs.forEach((job) => this.#start(job, ends));
        // A server that is stopping, or too old to wait, answers at once.
        wait = jobs.length > 0 ? 0 : Math.max(begin + 200 + Math.random() * 100 - now(), 0);
      } catch (e) {
        if (signal?.aborted) {
          return;
        }
        if (!temporary(e)) {
          throw e;
        }
        if (e.code === "no_answer") {
          // A slow link may not carry so many in time. What was in it comes again when its leases end.
          this.#most = 1;
        }
        this.#report(e);
        wait = pause(++failures, e.retryAfterMs);
      }
      if (wait > 0) {
        await sleep(wait, signal).catch(() => {}); // an abort ends the loop
      }
    }
  }

  /** Waits until a job is settled, or the signal aborts. */
  #change(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }

  #start(job: Job<T>, ends: number): void {
    const running = new Running(job, ends);
    const older = this.#newest.get(job.seq);
    if (older) {
      this.#lose(older); // or the job would not have been handed out again
    }
    this.#held.set(job.leaseId, running);
    this.#newest.set(job.seq, running);
    void this.#do(running);
  }

  /** Runs the handler of a job and has the job settled. It never rejects. */
  async #do(running: Running<T>): Promise<void> {
    let failed = false;
    try {
      await this.handler(running.job, running);
    } catch (e) {
      failed = true;
      if (!running.lost) {
        this.#report(e, running.job);
      }
    }
    running.settling = true;
    if (running.lost) {
      this.#end(running, "lost");
    } else if (failed) {
      await this.#settle([running], "failed", () => this.#nack(running.job));
    } else {
      this.#acks.push(running);
      if (!this.#acking) {
        await this.#flush();
      }
    }
  }

  #end(running: Running<T>, as: keyof WorkSummary): void {
    const { job } = running;
    this.#summary[as]++;
    this.#held.delete(job.leaseId);
    if (this.#newest.get(job.seq) === running) {
      this.#newest.delete(job.seq);
    }
    this.#wake();
  }

  /** Makes the call that settles jobs, and ends them as that says. */
  async #settle(batch: Running<T>[], as: "done" | "failed", call: (jobs: Job<T>[]) => Promise<SettleResult>): Promise<void> {
    try {
      const not = new Set((await call(batch.map((r) => r.job))).skipped.map(String));
      for (const running of batch) {
        const lost = not.size > 0 && not.has(String(running.job.seq));
        this.#end(running, lost ? "lost" : as);
        if (lost) {
          this.#report(leaseLost(running.job, as === "failed" ? "failed" : "was done"), running.job);
        }
      }
    } catch (e) {
      const parts = halves(e, batch);
      for (const part of parts) {
        await this.#settle(part, as, call);
      }
      for (const running of parts.length > 0 ? [] : batch) {
        this.#end(running, "lost");
        this.#report(e, running.job);
      }
    }
  }

  async #nack(job: Job<T>): Promise<SettleResult> {
    return this.client.nack(this.topic, job, { delayMs: this.#delay(job), retryMs: this.#leaseMs });
  }

  /** What retryDelayMs says, as a number that the server takes, or 0: a refused one would keep the job until its lease ends. */
  #delay(job: Job<T>): number {
    const { retryDelayMs = (j: Job<T>) => Math.min(1000 * 2 ** Math.min(j.deliveries - 1, 30), 60_000) } = this.options;
    try {
      const ms = Math.round(typeof retryDelayMs === "number" ? retryDelayMs : retryDelayMs(job));
      if (Number.isNaN(ms)) {
        throw new RangeError("retryDelayMs is no number");
      }
      return Math.min(Math.max(ms, 0), longestDelayMs);
    } catch (e) {
      this.#report(e, job);
      return 0;
    }
  }

  /** Acks what is done: together what is done in the same turn, and what is done while another ack is on its way. */
  async #flush(): Promise<void> {
    this.#acking = true;
    await Promise.resolve(); // the other handlers that are done by now come into the same call
    while (this.#acks.length > 0) {
      const batch = this.#acks;
      this.#acks = [];
      await this.#settle(batch, "done", (jobs) => this.client.ack(this.topic, jobs, { retryMs: this.#leaseMs }));
    }
    this.#acking = false;
  }

  /** Extends the leases of all that is held, until end aborts. */
  async #beat(end: AbortSignal): Promise<void> {
    const every = this.#leaseMs / 3;
    for (let wait = every; ; ) {
      try {
        await sleep(wait, end);
      } catch {
        return;
      }
      wait = every;
      const held = [...this.#newest.values()].filter((r) => !r.lost);
      if (held.length === 0) {
        continue;
      }
      try {
        await this.#extend(held, every, end);
      } catch (e) {
        if (end.aborted) {
          return;
        }
        this.#report(e);
        held.filter((r) => now() >= r.ends).forEach((r) => this.#lose(r));
        if (temporary(e)) {
          wait = every / 10; // there may be time for another try before the leases end
        }
      }
    }
  }

  async #extend(held: Running<T>[], retryMs: number, signal: AbortSignal): Promise<void> {
    const sent = now();
    try {
      const { skipped } = await this.client.extend(this.topic, held.map((r) => r.job), { leaseMs: this.#leaseMs, retryMs, signal });
      const not = new Set(skipped.map(String));
      for (const r of held) {
        if (not.has(String(r.job.seq))) {
          this.#lose(r);
        } else {
          r.ends = sent + this.#leaseMs;
        }
      }
    } catch (e) {
      const parts = halves(e, held);
      if (parts.length === 0) {
        throw e;
      }
      for (const part of parts) {
        await this.#extend(part, retryMs, signal);
      }
    }
  }

  /** Tells a handler that its job may be somebody else's. One that is being settled will be told by the answer. */
  #lose(running: Running<T>): void {
    if (running.settling) {
      return;
    }
    const e = leaseLost(running.job, "is still running");
    running.lose(e);
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

/** What to name in two calls, as the server is set to take fewer in one; else nothing. */
function halves<R>(e: unknown, batch: R[]): R[][] {
  const middle = batch.length >> 1;
  return e instanceof WeirError && e.code === "batch_too_large" && middle > 0 ? [batch.slice(0, middle), batch.slice(middle)] : [];
}

function leaseLost(job: Job, what: string): WeirError {
  return new WeirError("lease_lost", 0, `job ${job.seq} ${what}, but its lease has ended; it comes again`);
}
