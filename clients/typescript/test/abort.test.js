import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { connect, newTopic, noServer, refusal } from "./kit.js";

/** Checks that a call ends with the reason of its signal, leaves no listener behind, and does not begin with one that has aborted. */
async function ends(call) {
  const why = new Error("enough");
  const stop = new AbortController();
  const begin = performance.now();
  setTimeout(() => stop.abort(why), 50);
  await assert.rejects(call(stop.signal), (e) => e === why);
  assert.ok(performance.now() - begin < 10_000);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
  await assert.rejects(call(AbortSignal.abort(why)), (e) => e === why);
}

test("an abort ends a claim that waits", async () => {
  const client = connect();
  const topic = newTopic();
  await client.putTopic(topic, { type: "queue" });
  await ends((signal) => client.claim(topic, { waitMs: 30_000, signal }));
});

test("an abort ends a diff that waits", async () => {
  const client = connect();
  const topic = newTopic();
  await client.putTopic(topic);
  await ends((signal) => client.diff(topic, { waitMs: 30_000, signal }));
});

test("an abort ends the wait for the next try", async () => {
  const busy = connect({ fetch: async () => refusal(429, "throttled", { "Retry-After": "50" }), retryMs: 1e6 });
  await ends((signal) => busy.publish("t", 1, { signal }));
  const away = connect({ fetch: noServer, retryMs: 1e6 });
  await ends((signal) => away.diff("t", { signal }));
});

test("an abort ends the wait for a key", async () => {
  const client = connect({ key: () => new Promise(() => {}) });
  await ends((signal) => client.diff("t", { signal }));
  await ends((signal) => client.follow("t", { signal }).next());
});

test("an abort ends a follow that waits for records, and one that waits for the server", async () => {
  const client = connect();
  const topic = newTopic();
  await client.putTopic(topic);
  const all = async (c, signal) => {
    for await (const event of c.follow(topic, { signal })) {
      assert.equal(event.type, "caught-up");
    }
  };
  await ends((signal) => all(client, signal));
  await ends((signal) => all(connect({ fetch: noServer }), signal));
});

test("an abort ends work that waits for the server", async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 50);
  const summary = await connect({ fetch: noServer }).work("t", () => {}, { signal: stop.signal, onError: () => {} });
  assert.deepEqual(summary, { done: 0, failed: 0, lost: 0 });
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
});
