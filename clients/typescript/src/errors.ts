import { parse } from "./json.js";

/**
 * What every call of this client throws if it fails, except for an abort, which throws the
 * reason of the AbortSignal.
 */
export class WeirError extends Error {
  override readonly name = "WeirError";
  /**
   * The code of the server's answer, such as `topic_not_found`, or one of the client's own:
   * `unreachable` (there was no connection, nothing was sent), `no_answer` (the connection
   * broke, that of a proxy perhaps, or time was up: the request may have been carried out),
   * `unexpected_answer` (not from a weir server; a proxy, perhaps), `stream_ended` (the server
   * ended an event stream for good) and `lease_lost` (somebody else may have the job now).
   */
  readonly code: string;
  /** The HTTP status; 0 if there was no answer at all. */
  readonly status: number;
  /** What the server adds to some codes, with its own names: `detail.topic`, `detail.limit` and others. */
  readonly detail: Readonly<Record<string, unknown>>;
  /** How long the server asks to wait before the next try, in ms; 0 if it does not say. */
  readonly retryAfterMs: number;

  constructor(
    code: string,
    status: number,
    message: string,
    more: { detail?: Record<string, unknown>; retryAfterMs?: number; cause?: unknown } = {},
  ) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.status = status;
    this.detail = more.detail ?? {};
    this.retryAfterMs = more.retryAfterMs ?? 0;
  }
}

/** The longest wait that a server can ask for at once, in ms. */
const maxRetryAfterMs = 60_000;

/** Makes an error of an answer that is not 2xx. */
export function answerError(status: number, headers: Headers, text: string): WeirError {
  let error: Record<string, unknown> = {};
  try {
    error = ((parse(text) as Record<string, unknown> | null)?.["error"] as Record<string, unknown> | undefined) ?? {};
  } catch {
    // not JSON, so not from a weir server
  }
  const detail = (typeof error["detail"] === "object" && error["detail"] !== null ? error["detail"] : {}) as Record<string, unknown>;
  const retryAfterMs = askedWait(headers, detail["retry_after_ms"]);
  const to = status >= 300 && status < 400 ? /^https?:\/\/[^/?#]+/.exec(headers.get("Location") ?? "") : null; // in a page fetch hides it
  if (to !== null) {
    return new WeirError("unexpected_answer", status, `status ${status}: the server sends requests on to ${to[0]}: use that address`);
  }
  if (status === 503 && passedOn(text)) {
    return new WeirError("no_answer", status, "a proxy has lost the server, which may have carried out the request", { retryAfterMs });
  }
  if (typeof error["code"] !== "string") {
    return new WeirError("unexpected_answer", status, `status ${status}, without an error of weir; is this a weir server?`, { retryAfterMs });
  }
  return new WeirError(error["code"], status, String(error["message"] ?? error["code"]), { detail, retryAfterMs });
}

/**
 * Whether the text of a 503 may be that of a proxy for a connection that it lost, so that the request
 * may have been carried out: of Varnish, which never says more, or of Envoy, as in Istio, unless it
 * says that there was none. Others answer 502 for that, and 503 only for what they have not passed on.
 */
function passedOn(text: string): boolean {
  if (text.includes("Varnish cache server")) {
    return true;
  }
  const reason = text.split("disconnect/reset before headers")[1];
  return reason !== undefined && !/connection failure|reset reason: overflow/.test(reason);
}

/**
 * Prefers the milliseconds of the detail, which are scattered, to what the header says: whole seconds or, as
 * some proxies write it, a date. That counts from the date of the answer, as the clocks may differ.
 */
function askedWait(headers: Headers, detail: unknown): number {
  if (typeof detail === "number" && detail > 0) {
    return Math.min(detail, maxRetryAfterMs);
  }
  const header = headers.get("Retry-After") ?? "";
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : (date(header) ?? 0) - (date(headers.get("Date")) ?? Date.now());
  return Math.min(Math.max(ms, 0), maxRetryAfterMs);
}

/** A date of HTTP, in ms since 1970; undefined if text is none. */
function date(text: string | null): number | undefined {
  const ms = text?.endsWith(" GMT") ? Date.parse(text) : NaN; // it takes much else for a date, too
  return Number.isNaN(ms) ? undefined : ms;
}

/** What fetch's errors say if there was no connection at all, in Node; a browser never tells. */
const neverConnected = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

/** Makes an error of a fetch that failed. */
export function transportError(cause: unknown): WeirError {
  const why: string[] = [];
  let sent = true;
  for (let e = cause; e instanceof Error && why.length < 5; e = e.cause) {
    const code = (e as { code?: unknown }).code;
    sent &&= !(typeof code === "string" && neverConnected.has(code));
    why.push(e.message || String(code ?? e.name));
  }
  const text = why.join(": ") || String(cause);
  return sent
    ? new WeirError("no_answer", 0, `no answer from the server, which may have carried out the request: ${text}`, { cause })
    : new WeirError("unreachable", 0, `the server cannot be reached: ${text}`, { cause });
}

/** Whether the request was refused or never sent, so that any may be sent again. */
export function nothingHappened(e: WeirError): boolean {
  return e.code !== "no_answer" && (e.code === "unreachable" || e.status === 429 || e.status === 503 || e.status === 507);
}

/** Whether the same request may succeed later. */
export function temporary(e: unknown): e is WeirError {
  return e instanceof WeirError && (nothingHappened(e) || e.code === "no_answer" || e.status >= 500);
}
