import { follow, type FollowEvent, type FollowOptions, type FollowTopics } from "./follow.js";
import { type CallOptions, type ClientOptions, topicPath, Transport } from "./transport.js";
import type {
  ClaimOptions,
  DiffOptions,
  DiffResult,
  ExtendOptions,
  Held,
  Job,
  Message,
  NackOptions,
  PublishOptions,
  PublishResult,
  SettleResult,
  TopicConfig,
  TopicState,
  WriteOptions,
} from "./types.js";
import { unique } from "./wait.js";
import { fromWire, toWire } from "./wire.js";
import { type Handler, work, type WorkOptions, type WorkSummary } from "./work.js";

/**
 * Talks to one weir server. It keeps no state besides its name and may be used for any number
 * of calls at a time.
 *
 * Every call throws a WeirError if it fails, or the reason of its signal if that aborts. What the
 * server refuses with 429, 503 or 507 is tried again when the server says, and what found no connection
 * too; a request that may have been carried out is sent again only where that changes nothing. Both
 * end after `retryMs`.
 */
export class Client {
  /** Who claims jobs. */
  readonly node: string;
  readonly #transport: Transport;

  /** Throws a TypeError if url is none. A key in it, `http://:KEY@host:4000`, counts as `options.key`. */
  constructor(url: string | URL, options: ClientOptions = {}) {
    this.node = options.node ?? `ts-${unique()}`;
    this.#transport = new Transport(url, options);
  }

  /** Appends one record and creates the topic if it is absent. */
  async publish(topic: string, data: unknown, options: PublishOptions = {}): Promise<PublishResult> {
    const { tag, node, meta, priority, fairKey, delayMs, ...rest } = options;
    return this.publishBatch(topic, [{ data, tag, node, meta, priority, fairKey, delayMs }], rest);
  }

  /** Appends up to 10000 records, all or none, in their order. */
  async publishBatch(topic: string, messages: Iterable<Message>, options: WriteOptions = {}): Promise<PublishResult> {
    const { idempotencyKey = unique(), strict, create, config, disableBackpressure, signal, retryMs } = options;
    const records = Array.from(messages, toWire);
    return fromWire(
      await this.#transport.call({
        method: "POST",
        path: topicPath(topic) + (strict ? "?strict=true" : ""),
        body: toWire({ records, idempotencyKey: idempotencyKey ?? undefined, create, config: config && toWire(config), disableBackpressure }),
        repeatable: idempotencyKey !== null,
        fits: (a) => a["deduped"] === true || a["count"] === records.length,
        signal,
        retryMs,
      }),
    ) as PublishResult;
  }

  /** Reads the records behind a cursor. */
  async diff<T = unknown>(topic: string, options: DiffOptions = {}): Promise<DiffResult<T>> {
    const { signal, retryMs, ...fields } = options;
    return fromWire(
      await this.#transport.call({
        method: "POST",
        path: topicPath(topic, "diff"),
        body: toWire(fields),
        repeatable: true,
        fits: (a) => Array.isArray(a["records"]),
        waitMs: fields.waitMs,
        signal,
        retryMs,
      }),
    ) as DiffResult<T>;
  }

  /**
   * Yields what is written to topics, from where it is told to begin and for ever: each record once and
   * in order, over lost connections and restarts of the server, and a tombstone for what was lost.
   *
   * It ends when the last of the topics is deleted, and waits for a server that is away for as long as the
   * signal lets it. It throws a WeirError if a topic is not there at the start (`topic_not_found`) or the server
   * refuses for good, and the signal's reason if that aborts. To go on in another process, keep the `seq` of each
   * record when it is done and give it as `from`.
   */
  follow<T = unknown>(topics: FollowTopics, options: FollowOptions = {}): AsyncGenerator<FollowEvent<T>, void, undefined> {
    return follow<T>(this.#transport, topics, options);
  }

  /**
   * Leases up to `max` jobs to this client's node; it may get fewer, or none. If the answer is lost, the
   * call throws `no_answer`, and jobs that were in it come again when their leases end, at the latest.
   */
  async claim<T = unknown>(topic: string, options: ClaimOptions = {}): Promise<Job<T>[]> {
    const { signal, retryMs, ...fields } = options;
    const answer = await this.#transport.call({
      method: "POST",
      path: topicPath(topic, "claim"),
      body: toWire({ node: this.node, ...fields }),
      repeatable: false,
      fits: (a) => Array.isArray(a["claimed"]),
      waitMs: fields.waitMs,
      signal,
      retryMs,
    });
    return (fromWire(answer) as { claimed: Job<T>[] }).claimed;
  }

  /** Says that jobs are done: they are deleted. */
  ack(topic: string, jobs: Held | readonly Held[], options: CallOptions = {}): Promise<SettleResult> {
    return this.#settle("ack", topic, jobs, options);
  }

  /** Gives jobs back, to be handed out again, at once or later. */
  nack(topic: string, jobs: Held | readonly Held[], options: NackOptions = {}): Promise<SettleResult> {
    return this.#settle("nack", topic, jobs, options);
  }

  /** Lets leases last `leaseMs` from now. A lease that has ended is skipped. */
  extend(topic: string, jobs: Held | readonly Held[], options: ExtendOptions = {}): Promise<SettleResult> {
    return this.#settle("extend", topic, jobs, options);
  }

  async #settle(verb: string, topic: string, jobs: Held | readonly Held[], options: NackOptions & ExtendOptions): Promise<SettleResult> {
    const { signal, retryMs, ...fields } = options;
    const held = Array.isArray(jobs) ? (jobs as readonly Held[]) : [jobs as Held];
    return fromWire(
      await this.#transport.call({
        method: "POST",
        path: topicPath(topic, verb),
        body: toWire({ node: this.node, seqs: held.map((j) => j.seq), leaseIds: held.map((j) => j.leaseId), ...fields }),
        repeatable: true, // the lease ids keep a repeat from touching a later delivery
        fits: (a) => Array.isArray(a["skipped"]),
        mostMs: verb === "extend" && fields.leaseMs ? Math.max(fields.leaseMs / 3, 1000) : undefined, // a later one is of no use
        signal,
        retryMs,
      }),
    ) as SettleResult;
  }

  /**
   * Works on a queue until `options.signal` aborts: claims jobs as they come, calls handler for each, acks
   * those whose handler returns, and gives back those whose handler throws. Leases are extended while
   * handlers run. After the abort it takes nothing more, waits for the handlers that run, settles their jobs
   * and resolves.
   *
   * A job may come twice, after a lost lease or a restart of the server. How often a job that fails is
   * handed out is the queue's `maxDeliveries`. It throws the WeirError of a claim that will never succeed,
   * such as `topic_not_found`, once what it holds is settled, and a RangeError for a `concurrency` or
   * `leaseMs` that cannot be.
   */
  work<T = unknown>(topic: string, handler: Handler<T>, options: WorkOptions<T> = {}): Promise<WorkSummary> {
    return work<T>(this, topic, handler, options);
  }

  /** Creates a topic or replaces its configuration; omitted fields get their defaults. Returns whether it is new. */
  async putTopic(topic: string, config: TopicConfig = {}, options: CallOptions = {}): Promise<{ created: boolean; config: TopicConfig }> {
    return fromWire(
      await this.#transport.call({ method: "PUT", path: topicPath(topic) + "?strict=true", body: toWire(config), repeatable: true, fits: configured, ...options }),
    ) as { created: boolean; config: TopicConfig };
  }

  /** Reads the state of a topic, which does not count as reading the topic. */
  async topic(topic: string, options: CallOptions = {}): Promise<TopicState> {
    return fromWire(
      await this.#transport.call({ method: "GET", path: topicPath(topic) + "?touch=false", repeatable: true, fits: configured, ...options }),
    ) as TopicState;
  }

  /** Deletes a topic with all its records. Returns whether there was one. It is not repeated after a lost answer: it could delete what was created since. */
  async deleteTopic(topic: string, options: CallOptions = {}): Promise<boolean> {
    const answer = await this.#transport.call({
      method: "DELETE",
      path: topicPath(topic),
      repeatable: false,
      fits: (a) => typeof a["deleted"] === "boolean",
      ...options,
    });
    return (answer as { deleted: boolean }).deleted;
  }
}

function configured(answer: Record<string, unknown>): boolean {
  return typeof answer["config"] === "object" && answer["config"] !== null;
}
