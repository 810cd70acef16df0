import type { Integer } from "./json.js";
import type { components } from "./openapi.js";
import type { CallOptions } from "./transport.js";
import type { FromWire } from "./wire.js";

type Schemas = components["schemas"];

/**
 * A schema of the API's document under this package's names. The interfaces below extend them, and
 * so cannot contradict the document; they repeat a field only to say more about it: what this
 * package does with it, or that a number of it stays exact.
 */
type Wire<Name extends keyof Schemas> = FromWire<Schemas[Name]>;
/** What a call takes: there nothing is null that may be left out. */
type Input<Name extends keyof Schemas> = { [Field in keyof Wire<Name>]: NonNullable<Wire<Name>[Field]> };

/**
 * The number of a record in its topic, and a reader's cursor: 64 bits. It is a number as long as
 * that is exact and a bigint beyond 2^53 − 1; `<` and `==` compare both, and every call takes both.
 */
export type Seq = Integer;

/** A job's tier: which of the jobs that wait comes first. */
export type Priority = Schemas["Tier"];

/** What may be said about a record besides its data. */
export interface RecordOptions extends Omit<Input<"NewRecord">, "data"> {
  /** Up to 256 bytes; deletes and routers can select by it. */
  tag?: string;
  /** Up to 128 bytes: who wrote it. */
  node?: string;
  /** Up to 64 keys and 16384 bytes of JSON. */
  meta?: { [key: string]: unknown };
  /** The job's tier. Default: normal. */
  priority?: Priority;
  /** Up to 256 bytes: whom the job is for, such as a tenant. Those that wait take turns. */
  fairKey?: string;
  /** On a queue, how long nobody may claim it, in ms; up to 366 days. */
  delayMs?: number;
}

/** A record to be written. */
export interface Message extends RecordOptions {
  /** Any JSON. A bigint in it is written as an integer. */
  data: unknown;
}

/** What concerns a write as a whole. */
export interface WriteOptions extends CallOptions {
  /**
   * Up to 256 bytes: a second write with the same key stores nothing and gets the first one's answer.
   * Default: a new random key for each call, so that its own retries store nothing twice. With null there
   * is none, and the write is repeated only if it was refused or never sent.
   */
  idempotencyKey?: string | null;
  /** Makes a key that came with other records before a WeirError `idempotency_key_reused`, and so an unknown field. */
  strict?: boolean;
  /** Whether to create an absent topic. Default: as `config.autoCreate` says, which is true. */
  create?: boolean;
  /** How to create an absent topic. */
  config?: TopicConfig;
  /** Waits for room instead of being refused with 429 while the server is overloaded. */
  disableBackpressure?: boolean;
}

/** What publish takes. */
export type PublishOptions = RecordOptions & WriteOptions;

/** Something that the server noticed about a call that it has carried out. */
export interface Warning extends Wire<"Warning"> {}

/** The answer to a write. */
export interface PublishResult extends Omit<Wire<"WriteResult">, "performance"> {
  topic: string;
  firstSeq: Seq;
  lastSeq: Seq;
  /** The number of each record, in the order of the batch. */
  seqs: Seq[];
  headSeq: Seq;
  count: number;
  /** Whether the write created the topic. */
  created: boolean;
  /** Whether an earlier write with the same key, perhaps an earlier try of this call, has stored the records. */
  deduped: boolean;
  warnings?: Warning[];
}

/** A record as it is read. */
export interface TopicRecord<T = unknown> extends Wire<"Record"> {
  seq: Seq;
  /** When it was written, in Unix ms. */
  ts: number;
  data: T;
  node?: string;
  /** Only if tags were asked for. */
  tag?: string;
  priority?: Priority;
  fairKey?: string;
  meta?: { [key: string]: unknown };
}

/** Records that were lost before they were read: by a cap, a time to live, a crash. */
export interface Tombstone extends Omit<Wire<"Tombstone">, "missedEstimate"> {
  gapFrom: Seq;
  /** The last number of the gap. */
  gapTo: Seq;
  /** `cap`, `ttl`, `mixed`, `source_trim`, `crash`, `from_seq_too_old`, or `recreated`: a newer topic has the name. */
  reason: Schemas["TombstoneReason"];
  earliestSeq: Seq;
  headSeq: Seq;
}

/** What diff takes. */
export interface DiffOptions extends CallOptions, Omit<Input<"Diff">, "relay"> {
  /** The last number already seen. Default: 0, the beginning. */
  fromSeq?: Seq;
  /** Most records, up to 1000. Default: 256. */
  limit?: number;
  /** Most bytes, up to 8 MiB; at least one record comes. Default: 1 MiB. */
  maxBatchBytes?: number;
  /** How long to wait on the server if there is nothing yet, in ms, up to 30000. Default: 0. */
  waitMs?: number;
  /** Whose records to leave out. */
  node?: string | string[];
  /** Default: false. */
  includeTags?: boolean;
  /** Default: true. */
  includeMeta?: boolean;
}

/** The answer to diff. */
export interface DiffResult<T = unknown> extends Omit<Wire<"DiffResult">, "records" | "tombstone" | "performance" | "life"> {
  records: TopicRecord<T>[];
  /** The cursor behind what was read: the `fromSeq` of the next call. */
  nextFromSeq: Seq;
  headSeq: Seq;
  earliestSeq: Seq;
  /** Whether everything has been read. */
  caughtUp: boolean;
  /** How many numbers are ahead. */
  lag: Seq;
  /** What was lost in front of the records. */
  tombstone: Tombstone | null;
}

/** The configuration of a topic; docs of weir tell each field. */
export interface TopicConfig extends Wire<"TopicConfig"> {
  /** Age at which records disappear, in ms. Default: 0, never. */
  ttlMs?: number;
  /** How long keys are remembered, in ms; 0: not at all. Default: 120000. */
  idempotencyWindowMs?: number;
  /** How long a lease lasts if a claim does not say, in ms. Default: 30000. */
  leaseMs?: number;
  claimJitterMs?: number;
  /** After how many deliveries a job goes to `deadLetter`. Default: 0, never. */
  maxDeliveries?: number;
}

/** The state of a topic. */
export interface TopicState extends Omit<Wire<"TopicState">, "config" | "performance"> {
  topic: string;
  type: "log" | "queue";
  headSeq: Seq;
  nextSeq: Seq;
  earliestSeq: Seq;
  count: number;
  bytes: number;
  config: TopicConfig;
  /** Unix ms; null: never. */
  lastWriteTs: number | null;
  lastReadTs: number | null;
  /** Only of a queue. */
  queue?: Wire<"QueueCounters"> & { ready: number; inFlight: number; delayed: number; scheduled: number; deadLettered: number };
}

/** A job that this client's node holds. */
export interface Job<T = unknown> extends TopicRecord<T>, Omit<Wire<"Job">, "data"> {
  /** New for each delivery; a call with an older one does nothing. */
  leaseId: string;
  /** When the lease ends, in Unix ms by the server's clock. */
  deadline: number;
  /** How often the job has been handed out, this time included. */
  deliveries: number;
}

/** What claim takes. */
export interface ClaimOptions extends CallOptions, Omit<Input<"Claim">, "node"> {
  /** Most jobs, up to 1000. Default: 1. */
  max?: number;
  /** How long they are this client's, in ms, 100 to 86400000. Default: the queue's. */
  leaseMs?: number;
  /** How long to wait on the server for a job if there is none, in ms, up to 30000. Default: 0. */
  waitMs?: number;
}

/** What names a job in ack, nack and extend; a Job is one. */
export type Held = Pick<Job, "seq" | "leaseId">;

/** What nack takes. */
export interface NackOptions extends CallOptions {
  /** How long nobody may claim the jobs, in ms, up to a day. Default: 0. */
  delayMs?: number;
  /** false: the work was not begun, and the delivery does not count. */
  started?: boolean;
}

/** What extend takes. */
export interface ExtendOptions extends CallOptions {
  /** How long the lease lasts from now, in ms. Default: the queue's. */
  leaseMs?: number;
}

/**
 * The answer to ack, nack and extend. A call that was repeated because its first answer was lost
 * lists in `skipped` what the first one settled.
 */
export interface SettleResult extends Pick<Wire<"AckResult">, "skipped"> {
  /** The numbers of those that this client no longer held. */
  skipped: Seq[];
}
