import { answerError, nothingHappened, transportError, WeirError } from "./errors.js";
import { parse, stringify } from "./json.js";
import { after, link, now, pause, sleep, unlessAborted } from "./wait.js";

/** How a Client reaches its server. */
export interface ClientOptions {
  /**
   * The API key or read token, sent as `Authorization: Bearer`; a function is asked before each request, so that a
   * page can get a new token before one expires. What it throws, the call throws. Default: the one in the URL
   * (`http://:KEY@host`), or none.
   */
  key?: string | (() => string | Promise<string>);
  /** Who claims jobs, up to 128 bytes. Two clients that work at the same time need different ones. Default: a random name. */
  node?: string;
  /** How long one request may take, in ms, on top of what it waits by itself; 24 days at most. Default: 30000. */
  timeoutMs?: number;
  /**
   * For how long a call is tried again, in ms. Default: 60000. With `timeoutMs` it has to stay below the
   * topic's `idempotencyWindowMs` (120000 by default): behind that the server stores a repeat again.
   */
  retryMs?: number;
  /** Another fetch than the global one, for proxies, certificates and tests. */
  fetch?: typeof globalThis.fetch;
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, whatever it waits for: it rejects with the signal's reason. */
  signal?: AbortSignal;
  /** As in ClientOptions, for this call; 0 tries once. */
  retryMs?: number;
}

/** One call. */
export interface Call extends CallOptions {
  method: "GET" | "PUT" | "POST" | "DELETE";
  path: string;
  /** What is sent as JSON; undefined: no body. */
  body?: unknown;
  /** Whether it may be sent again though it may have been carried out. */
  repeatable: boolean;
  /** Whether an answer is one of this call. */
  fits: (answer: Record<string, unknown>) => boolean;
  /** How long the server may hold it, in ms. */
  waitMs?: number;
  /** The most that one request may take, in ms, if that is less than ClientOptions say. */
  mostMs?: number;
}

/** Sends requests, again where that is safe. */
export class Transport {
  readonly #base: string;
  readonly #key: string | (() => string | Promise<string>);
  readonly #fetch: typeof globalThis.fetch;
  readonly #timeoutMs: number;
  readonly #retryMs: number;

  constructor(url: string | URL, options: ClientOptions) {
    const u = serverURL(url);
    this.#key = options.key ?? keyOf(u);
    this.#base = (u.origin + u.pathname).replace(/\/+$/, "");
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#retryMs = options.retryMs ?? 60_000;
  }

  /** Makes a call and returns its parsed answer. */
  async call(call: Call): Promise<unknown> {
    const body = call.body === undefined ? undefined : stringify(call.body);
    const until = now() + (call.retryMs ?? this.#retryMs);
    for (let n = 1; ; n++) {
      try {
        return await this.#attempt(call, body);
      } catch (e) {
        if (!(e instanceof WeirError) || !(nothingHappened(e) || (call.repeatable && mayHaveHappened(e)))) {
          throw e;
        }
        const ms = pause(n, e.retryAfterMs);
        if (now() + ms > until) {
          throw e;
        }
        await sleep(ms, call.signal);
      }
    }
  }

  async #attempt(call: Call, body: string | undefined): Promise<unknown> {
    call.signal?.throwIfAborted();
    const stop = new AbortController();
    const unlink = link(call.signal, stop);
    try {
      const init = this.#init(call.method, body, stop.signal);
      return await this.#exchange(call, init instanceof Promise ? await init : init, stop);
    } finally {
      unlink();
    }
  }

  async #exchange(call: Call, init: Init, stop: AbortController): Promise<unknown> {
    const ms = Math.min(this.#timeoutMs, call.mostMs ?? Infinity) + (call.waitMs ?? 0);
    const inTime = after(ms, () => stop.abort(new Error(`nothing within ${ms} ms`)));
    let res: Response;
    let text: string;
    try {
      res = await this.#fetch(this.#base + call.path, init);
      text = await res.text();
    } catch (e) {
      call.signal?.throwIfAborted();
      throw transportError(stop.signal.aborted ? stop.signal.reason : e);
    } finally {
      inTime();
    }
    if (!res.ok) {
      throw answerError(res.status, res.headers, text);
    }
    let answer: unknown;
    try {
      answer = parse(text);
    } catch (cause) {
      throw new WeirError("unexpected_answer", res.status, "the answer is not JSON; is this a weir server?", { cause });
    }
    if (typeof answer !== "object" || answer === null || !call.fits(answer as Record<string, unknown>)) {
      throw new WeirError("unexpected_answer", res.status, `the answer is none to ${call.method} ${call.path}; is this a weir server?`);
    }
    return answer;
  }

  /** Opens an event stream behind the event lastId, if that is not empty. Aborting stop ends it. */
  async open(path: string, lastId: string, stop: AbortController): Promise<ReadableStream<Uint8Array>> {
    const init = await this.#init("GET", undefined, stop.signal);
    init.headers["Accept"] = "text/event-stream";
    if (lastId !== "") {
      init.headers["Last-Event-ID"] = lastId;
    }
    const inTime = after(this.#timeoutMs, () => stop.abort(new Error(`nothing within ${this.#timeoutMs} ms`)));
    try {
      const res = await this.#fetch(this.#base + path, init);
      if (!res.ok) {
        throw answerError(res.status, res.headers, await res.text());
      }
      if (!res.body) {
        throw new WeirError("unexpected_answer", res.status, "the answer has no body; is this a weir server?");
      }
      return res.body;
    } catch (e) {
      throw e instanceof WeirError ? e : transportError(stop.signal.aborted ? stop.signal.reason : e);
    } finally {
      inTime();
    }
  }

  /** What fetch gets; a promise only if the key is a function's. */
  #init(method: string, body: string | undefined, signal: AbortSignal): Init | Promise<Init> {
    if (typeof this.#key === "function") {
      return unlessAborted(signal, this.#key).then((key) => init(method, body, signal, key));
    }
    return init(method, body, signal, this.#key);
  }
}

type Init = Omit<RequestInit, "headers"> & { headers: Record<string, string> };

/** The URL of a server. Throws a TypeError, which does not quote it: it may carry a key. */
function serverURL(url: string | URL): URL {
  let u: URL | undefined;
  try {
    u = new URL(url);
  } catch {
    // It has no scheme, as 127.0.0.1:4000 has none.
  }
  if (u === undefined || (u.protocol !== "http:" && u.protocol !== "https:")) {
    throw new TypeError("a weir server's URL begins with http:// or https://");
  }
  return u;
}

/** The key that a URL carries. Throws a TypeError, which does not quote it, for a "%" that nothing is encoded with. */
function keyOf(u: URL): string {
  try {
    return decodeURIComponent(u.password || u.username);
  } catch {
    throw new TypeError("the key in the server's URL is not percent-encoded: write % as %25, or pass the key as an option");
  }
}

function init(method: string, body: string | undefined, signal: AbortSignal, key: string): Init {
  // The server is usually nearby, where to unpack an answer costs more than to read it; browsers ask for what they like.
  const headers: Record<string, string> = { "Accept-Encoding": "identity" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  if (key) {
    if (/[^\t\x20-\x7e\x80-\xff]/.test(key.trim())) {
      throw new TypeError("the key has characters that no header can hold, such as the end of a line"); // fetch's error quotes it
    }
    headers["Authorization"] = `Bearer ${key}`;
  }
  // Only of a GET an answer may come from a cache; to say so makes more headers.
  return { method, headers, body, signal, redirect: "manual", cache: method === "GET" ? "no-store" : "default" };
}

function mayHaveHappened(e: WeirError): boolean {
  return e.code === "no_answer" || e.status >= 500;
}

/** The path of a topic, or of one of its verbs. Throws a TypeError for what cannot be a name. */
export function topicPath(topic: string, verb = ""): string {
  // Without types undefined comes here too, and would be a topic of that name.
  if (typeof topic !== "string" || !/^[A-Za-z0-9]/.test(topic)) {
    throw new TypeError(`a topic's name is a string that begins with a letter or a digit, not ${JSON.stringify(topic)}`);
  }
  return `/v0/topics/${encodeURIComponent(topic)}${verb && "/" + verb}`;
}
