/** The longest that setTimeout waits, in ms; of more it makes 1. */
const longest = 2 ** 31 - 1;

/** Calls f after ms milliseconds. Returns what undoes that. */
export function after(ms: number, f: () => void): () => void {
  const timer = setTimeout(f, Math.min(ms, longest));
  return () => clearTimeout(timer);
}

/** Waits for ms milliseconds. Rejects with the reason of signal if that aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const stop = () => {
      undo();
      reject(signal?.reason);
    };
    const undo = after(ms, () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    });
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** What get resolves to. Rejects with the reason of signal if that aborts first. */
export async function unlessAborted<T>(signal: AbortSignal, get: () => T | Promise<T>): Promise<T> {
  const stop = new AbortController();
  const unlink = link(signal, stop);
  const aborted = new Promise<never>((_, reject) => {
    stop.signal.addEventListener("abort", () => reject(stop.signal.reason), { once: true });
  });
  try {
    signal.throwIfAborted();
    return await Promise.race([get(), aborted]);
  } finally {
    unlink();
  }
}

/** Aborts to when from aborts. Returns what undoes that. */
export function link(from: AbortSignal | undefined, to: AbortController): () => void {
  if (!from) {
    return () => {};
  }
  const pass = () => to.abort(from.reason);
  if (from.aborted) {
    pass();
  }
  from.addEventListener("abort", pass, { once: true });
  return () => from.removeEventListener("abort", pass);
}

/** The wait before try n (1 is the first), in ms: base doubled each time up to limit, of which a random half is taken off. */
export function backoff(n: number, base = 50, limit = 2000): number {
  const ms = Math.min(base * 2 ** Math.min(n - 1, 30), limit);
  return ms / 2 + Math.random() * (ms / 2);
}

/**
 * The wait before try n after a server has asked for askedMs: never less than that, and up to
 * half as much again, so that clients refused together do not come back together.
 */
export function pause(n: number, askedMs: number, limit = 2000): number {
  return Math.max(backoff(n, 50, limit), askedMs * (1 + Math.random() / 2));
}

/** Milliseconds on a clock that never jumps. */
export function now(): number {
  return performance.now();
}

const hex = Array.from({ length: 256 }, (_, b) => b.toString(16).padStart(2, "0"));
const bytes = new Uint8Array(2048); // random ones for 128 names: to get more at once costs no more
let used = bytes.length;

/** A name that nobody else has: 128 random bits. */
export function unique(): string {
  if (used === bytes.length) {
    const source = globalThis.crypto as Crypto | undefined; // Node 18 has none there
    if (source) {
      source.getRandomValues(bytes);
    } else {
      bytes.forEach((_, i) => (bytes[i] = Math.random() * 256));
    }
    used = 0;
  }
  let name = "";
  for (const end = used + 16; used < end; used++) {
    name += hex[bytes[used]!];
  }
  return name;
}
