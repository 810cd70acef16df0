import { temporary, transportError, WeirError } from "./errors.js";
import { parse } from "./json.js";
import { FrameReader, type Frame } from "./sse.js";
import type { CallOptions, Transport } from "./transport.js";
import type { Seq, Tombstone, TopicRecord } from "./types.js";
import { link, pause, sleep } from "./wait.js";
import { fromWire } from "./wire.js";

/** What to follow: a name, names, or names with the last number already seen of each, or "tail". */
export type FollowTopics = string | readonly string[] | { readonly [topic: string]: Seq | "tail" };

/** What follow takes. */
export interface FollowOptions extends Omit<CallOptions, "retryMs"> {
  /** Where names without a number begin: behind this number, or with what is written from now on. Default: 0, the beginning. */
  from?: Seq | "tail";
  /** Most records that the server sends at once, up to 1000. Default: 256. */
  limit?: number;
  /** Most bytes that it sends at once, up to 8 MiB. Default: 256 KiB. */
  maxBatchBytes?: number;
  /** Whose records to leave out. */
  node?: string | string[];
  /** Default: false. */
  includeTags?: boolean;
  /** Default: true. */
  includeMeta?: boolean;
  /** How often an idle server says that it is there, in ms, 1000 to 60000; after three times that the connection counts as lost. Default: 15000. */
  heartbeatMs?: number;
  /** Called when the stream is lost, before the next try. */
  onLost?: (error: WeirError) => void;
}

/** What follow yields. */
export type FollowEvent<T = unknown> =
  | ({ type: "record"; topic: string } & TopicRecord<T>)
  /** Records were lost before they could be sent; what follows is behind the gap. */
  | ({ type: "tombstone"; topic: string; recreated: boolean } & Tombstone)
  /** Everything up to `headSeq` has come. */
  | { type: "caught-up"; topic: string; headSeq: Seq }
  /** The topic is gone; the others go on. If it is created again, that comes at the next connection at the latest, as a tombstone that is `recreated`. */
  | { type: "deleted"; topic: string };

/** The longest wait between connections, in ms, until the server gives a hint. */
const retryLimitMs = 2000;

export async function* follow<T>(transport: Transport, topics: FollowTopics, options: FollowOptions): AsyncGenerator<FollowEvent<T>, void, undefined> {
  const f = new Follower<T>(transport, topics, options);
  while (f.at.size > 0) {
    options.signal?.throwIfAborted();
    let lost: WeirError;
    try {
      yield* f.connect();
      return;
    } catch (e) {
      options.signal?.throwIfAborted();
      const gone = f.drop(e);
      if (gone !== undefined) {
        yield { type: "deleted", topic: gone };
        continue;
      }
      if (!temporary(e)) {
        throw e;
      }
      lost = e;
    }
    options.onLost?.(lost);
    await sleep(f.pause(lost), options.signal);
  }
}

/** What is known across the connections of one follow. */
class Follower<T> {
  /** Per topic, the last number delivered. */
  readonly at = new Map<string, Seq | "tail">();
  #wid = ""; // the session; empty if one has to be created
  #lastId = ""; // of the last event delivered in it
  #started = false; // its stream was open once
  #began = false; // there was a session
  #tries = 0; // failures since the last event
  #retryMs = retryLimitMs;

  constructor(
    private readonly transport: Transport,
    topics: FollowTopics,
    private readonly options: FollowOptions,
  ) {
    const start = options.from ?? 0;
    if (typeof topics === "string") {
      this.at.set(topics, start);
    } else if (Array.isArray(topics)) {
      for (const topic of topics as readonly string[]) {
        this.at.set(topic, start);
      }
    } else {
      for (const [topic, seq] of Object.entries(topics as { [topic: string]: Seq | "tail" })) {
        this.at.set(topic, seq);
      }
    }
  }

  get #heartbeatMs(): number {
    return Math.min(Math.max(this.options.heartbeatMs ?? 15_000, 1000), 60_000);
  }

  /** Yields the events of one connection. Returns when all topics are gone. */
  async *connect(): AsyncGenerator<FollowEvent<T>, void, undefined> {
    if (this.#started && this.#lastId === "") {
      this.#wid = ""; // events may have been sent and lost: without an id the server cannot know
    }
    if (this.#wid === "") {
      await this.#openSession();
    }
    const stop = new AbortController();
    const unlink = link(this.options.signal, stop);
    try {
      const body = await this.#openStream(stop);
      this.#started = true;
      yield* this.#events(body, stop);
    } finally {
      unlink();
      stop.abort();
    }
  }

  async #openSession(): Promise<void> {
    const { limit, maxBatchBytes: max_batch_bytes, node, includeTags: include_tags, includeMeta: include_meta, signal } = this.options;
    const topics = Object.create(null) as { [topic: string]: object };
    for (const [topic, at] of this.at) {
      topics[topic] = at === "tail" ? { tail: true } : { from_seq: at };
    }
    const answer = (await this.transport.call({
      method: "POST",
      path: "/v0/watch",
      body: { topics, limit, max_batch_bytes, node, include_tags, include_meta, heartbeat_ms: this.#heartbeatMs },
      repeatable: true, // a session that nobody knows of ends by itself
      fits: (a) => typeof a["wid"] === "string" && a["wid"] !== "",
      retryMs: 0,
      signal,
    })) as { wid: string; topics?: { [topic: string]: { from_seq: Seq } } };
    for (const [topic, at] of this.at) {
      if (at === "tail") {
        this.at.set(topic, answer.topics?.[topic]?.from_seq ?? 0);
      }
    }
    this.#wid = answer.wid;
    this.#lastId = "";
    this.#started = false;
    this.#began = true;
  }

  async #openStream(stop: AbortController): Promise<ReadableStream<Uint8Array>> {
    try {
      return await this.transport.open(`/v0/watch/${encodeURIComponent(this.#wid)}`, this.#lastId, stop);
    } catch (e) {
      // To a session that was this key's, a key with other rights is another one; whether it is still
      // good for a new one is said where that is asked for.
      if (e instanceof WeirError && (e.status === 404 || (this.#started && e.status === 401))) {
        this.#wid = "";
        throw sessionLost();
      }
      throw e;
    }
  }

  async *#events(body: ReadableStream<Uint8Array>, stop: AbortController): AsyncGenerator<FollowEvent<T>, void, undefined> {
    const source = body.getReader();
    const frames = new FrameReader();
    const gone = new Set<string>();
    for (;;) {
      const bytes = await this.#read(source, stop);
      if (bytes === undefined) {
        if (gone.size === this.at.size) {
          return;
        }
        throw transportError(new Error("the stream ended"));
      }
      const whole = frames.push(bytes);
      this.#retryMs = frames.retryMs || this.#retryMs; // of the end of the stream, too, which throws
      for (const frame of whole) {
        yield* this.#deliver(frame, gone);
        this.#lastId = frame.id || this.#lastId;
        this.#tries = 0;
      }
    }
  }

  /** The next piece of the stream, undefined at its end. The time between calls does not count as silence. */
  async #read(source: ReadableStreamDefaultReader<Uint8Array>, stop: AbortController): Promise<Uint8Array | undefined> {
    const timer = setTimeout(() => stop.abort(new Error("the stream was silent for too long")), 3 * this.#heartbeatMs);
    try {
      const { value, done } = await source.read();
      return done ? undefined : value;
    } catch (e) {
      throw transportError(stop.signal.aborted ? stop.signal.reason : e);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Yields what one event says and moves the topic's position behind it. Events of a later server are ignored. */
  *#deliver(frame: Frame, gone: Set<string>): Generator<FollowEvent<T>, void, undefined> {
    if (frame.event === "error") {
      this.#error(content(frame) as StreamError);
      return;
    }
    const whole = wholeEvents.get(frame.event);
    if (whole === undefined) {
      return;
    }
    const e = fromWire(content(frame)) as StreamEvent<T>;
    if (typeof e.topic !== "string" || !whole(e)) {
      throw new WeirError("unexpected_answer", 200, `an event "${frame.event}" of the stream is not what /v0 says`);
    }
    const at = this.at.get(e.topic);
    if (at === undefined || at === "tail") {
      return;
    }
    switch (frame.event) {
      case "record":
        gone.delete(e.topic); // it was created again
        for (const record of e.records) {
          if (record.seq > at) {
            this.at.set(e.topic, record.seq);
            yield { type: "record", topic: e.topic, ...record };
          }
        }
        this.at.set(e.topic, e.toSeq > at ? e.toSeq : at);
        return;
      case "tombstone": {
        gone.delete(e.topic);
        const { topic, gapFrom, gapTo, reason, earliestSeq, headSeq } = e;
        // The first one of a connection does not tell the cause, but after a mere loss nothing of the gap is left.
        const recreated = reason === "recreated" || earliestSeq <= gapTo;
        this.at.set(topic, recreated ? before(earliestSeq) : gapTo);
        yield { type: "tombstone", topic, recreated, gapFrom, gapTo, reason, earliestSeq, headSeq };
        return;
      }
      case "caught-up":
        yield { type: "caught-up", topic: e.topic, headSeq: e.headSeq };
        return;
      case "topic-deleted":
        gone.add(e.topic);
        yield { type: "deleted", topic: e.topic };
    }
  }

  /** Throws why the stream ends; an advice is none. */
  #error(e: StreamError): void {
    if (e.code === 429) {
      return; // pushes are slow because the server is under pressure
    }
    if (e.code === 410) {
      this.#wid = "";
      throw sessionLost();
    }
    const message = `the server ended the stream: ${e.message ?? e.error ?? e.code}`;
    if (e.code === "server_shutting_down") {
      throw new WeirError("shutting_down", 503, message, { retryAfterMs: this.#retryMs });
    }
    throw new WeirError("no_answer", 0, message); // what a later server may say; connecting again shows what it is
  }

  /** Takes a topic out that has gone since the last session, and returns its name. */
  drop(e: unknown): string | undefined {
    const topic = e instanceof WeirError && e.code === "topic_not_found" ? e.detail["topic"] : undefined;
    return typeof topic === "string" && this.#began && this.at.delete(topic) ? topic : undefined;
  }

  /** How long to wait before the next connection, in ms. */
  pause(e: WeirError): number {
    return pause(++this.#tries, e.retryAfterMs, this.#retryMs);
  }
}

interface StreamError {
  code: unknown; // a number or a string
  error?: string;
  message?: string;
}

interface StreamEvent<T> extends Tombstone {
  topic: string;
  toSeq: Seq;
  records: TopicRecord<T>[];
}

/** For each event that is known, whether one has what is read of it: a position that is none would be sent on. */
const wholeEvents = new Map<string, (e: StreamEvent<unknown>) => boolean>([
  ["record", (e) => isSeq(e.toSeq) && Array.isArray(e.records) && e.records.every((r) => isSeq(r?.seq))],
  ["tombstone", (e) => isSeq(e.gapTo) && isSeq(e.earliestSeq)],
  ["caught-up", (e) => isSeq(e.headSeq)],
  ["topic-deleted", () => true],
]);

function isSeq(value: unknown): boolean {
  return typeof value === "number" || typeof value === "bigint";
}

function content(frame: Frame): object {
  let value: unknown;
  let cause: unknown;
  try {
    value = parse(frame.data);
  } catch (e) {
    cause = e;
  }
  if (typeof value !== "object" || value === null) {
    throw new WeirError("unexpected_answer", 200, `an event "${frame.event}" of the stream is no JSON object`, { cause });
  }
  return value;
}

function sessionLost(): WeirError {
  return new WeirError("no_answer", 0, "the server no longer knows the watch session");
}

/** The number in front of seq. */
function before(seq: Seq): Seq {
  return typeof seq === "bigint" ? seq - 1n : Math.max(seq, 1) - 1;
}
