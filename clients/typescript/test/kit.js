// What the tests share: a real server, whose address is in WEIR_URL, and connections to it that misbehave.
import assert from "node:assert/strict";
import process from "node:process";
import { test as once } from "node:test";
import { Client } from "@weirmq/client";

export const url = process.env.WEIR_URL;
assert.ok(url, "WEIR_URL is not set; these tests are run by go test ./tests/clients/typescript");

/** A client of the real server. */
export function connect(options) {
  return new Client(url, options);
}

/** Waits until a signal has aborted, which it may have before. */
export function aborted(signal) {
  return new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", resolve)));
}

/** Adds up by how much short waits take too long, until the function that it returns is called: for so long the machine stood still. */
function standstill() {
  let [before, ms] = [performance.now(), 0];
  const tick = setInterval(() => {
    const now = performance.now();
    ms += now - before > 100 ? now - before : 0;
    before = now;
  }, 10);
  return () => {
    clearInterval(tick);
    return ms;
  };
}

/** A test of short leases, which is run again if it fails while the machine stands still: they have run out then. */
export function test(name, run) {
  return once(name, async () => {
    for (let left = 5; ; left--) {
      const stood = standstill();
      try {
        return await run();
      } catch (e) {
        if (stood() < 300 || left === 0) {
          throw e;
        }
      } finally {
        stood();
      }
    }
  });
}

let topics = 0;

/** A name that no other test has. */
export function newTopic() {
  return `js-${process.pid}-${Date.now()}-${++topics}`;
}

/** A fetch that sends each request and then loses the first n answers to requests whose path matches. */
export function losing(n, path) {
  const fetch = async (input, init) => {
    const res = await globalThis.fetch(input, init);
    if (path.test(String(input)) && fetch.lost < n) {
      fetch.lost++;
      await res.arrayBuffer();
      throw new TypeError("fetch failed", { cause: new Error("other side closed") });
    }
    return res;
  };
  fetch.lost = 0;
  return fetch;
}

/** A fetch that is refused the first n times, as answer() says, and records when it was called. */
export function refusing(n, answer) {
  const fetch = async (input, init) => {
    fetch.at.push(performance.now());
    return fetch.at.length <= n ? answer() : globalThis.fetch(input, init);
  };
  fetch.at = [];
  return fetch;
}

/** A fetch that only answers, with JSON, and records what it was sent. */
export function answering(answer) {
  const fetch = async (input, init) => {
    fetch.sent.push(init.body);
    return new Response(answer(String(input), init), { headers: { "Content-Type": "application/json" } });
  };
  fetch.sent = [];
  return fetch;
}

/** An answer of the server that is an error. */
export function refusal(status, code, headers = {}, detail = undefined) {
  return new Response(JSON.stringify({ error: { code, message: `it is ${code}`, detail } }), { status, headers });
}

/** A fetch that finds no server. */
export function noServer() {
  return Promise.reject(new TypeError("fetch failed", { cause: Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }) }));
}

/** Waits until ok, which may be asynchronous, is true. */
export async function eventually(what, ok) {
  const end = Date.now() + 60_000;
  while (!(await ok())) {
    assert.ok(Date.now() < end, `waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A promise and what fulfils it. */
export function promise() {
  let resolve;
  const done = new Promise((r) => (resolve = r));
  return { done, resolve };
}

/** The next n records of a follow. */
export async function take(events, n) {
  const records = [];
  while (records.length < n) {
    const { value, done } = await events.next();
    assert.ok(!done, "the stream has ended");
    if (value.type === "record") {
      records.push(value);
    }
  }
  return records;
}
