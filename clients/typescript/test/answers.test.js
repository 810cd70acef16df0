// Workers and follows of a server whose answers are made up, as a real one seldom gives them.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { connect, eventually, promise, refusal, test } from "./kit.js";

/** A fetch that hands out jobs 1 to n at the first claim and then answers as it is told; it records what it was sent. */
function made(n, answers = {}) {
  const fetch = async (input, init) => {
    const verb = String(input).split("/").pop();
    fetch.sent.push([verb, JSON.parse(init.body), performance.now()]);
    init.signal.throwIfAborted();
    if (verb === "claim" && n > 0) {
      const claimed = Array.from({ length: n }, (_, i) => ({ $seq: i + 1, lease_id: `lease_${i + 1}`, deliveries: answers.deliveries ?? 1 }));
      n = 0;
      return Response.json({ claimed });
    }
    const answer = await answers[verb]?.();
    return answer instanceof Response ? answer : Response.json(answer ?? { claimed: [], skipped: [] });
  };
  fetch.sent = [];
  fetch.bodies = (verb) => fetch.sent.filter(([v]) => v === verb).map(([, body]) => body);
  return fetch;
}

const lost = () => Promise.reject(new TypeError("fetch failed", { cause: new Error("other side closed") }));

/** Works until done() or the end. Returns the summary or the error, and the codes of what was reported. */
async function work(fetch, handler, done, options = {}) {
  const stop = new AbortController();
  const told = [];
  const onError = (e) => told.push(e.code ?? e.message);
  let ended = false;
  const working = connect({ fetch }).work("q", handler, { signal: stop.signal, onError, ...options }).catch((e) => e).finally(() => (ended = true));
  await eventually("what it waits for", () => ended || done(told));
  stop.abort();
  return [await working, told];
}

test("a server that does not wait is not asked in a busy loop", async () => {
  const fetch = made(0);
  await work(fetch, () => {}, () => fetch.sent.length === 3);
  const [first, , third] = fetch.sent.map(([, , at]) => at);
  assert.ok(third - first >= 395, `three claims within ${third - first} ms`);
});

test("a claim that fails is made again after longer and longer", async () => {
  const fetch = made(0, { claim: () => refusal(500, "internal") });
  await work(fetch, () => {}, () => fetch.sent.length === 4);
  const [first, , , fourth] = fetch.sent.map(([, , at]) => at);
  assert.ok(fourth - first >= 170, `four claims within ${fourth - first} ms`); // 25, 50 and 100 at least
});

test("a job that its ack skips is lost, not done", async () => {
  const fetch = made(2, { ack: () => ({ acked: 1, skipped: [2] }) });
  const [summary, told] = await work(fetch, () => {}, () => fetch.bodies("ack").length > 0, { concurrency: 2 });
  assert.deepEqual([summary, told], [{ done: 1, failed: 0, lost: 1 }, ["lease_lost"]]);
});

test("an error of onError stops nothing", async () => {
  const fetch = made(1);
  const onError = () => { throw new Error("mine"); };
  const [summary] = await work(fetch, () => Promise.reject(new Error("no")), () => fetch.bodies("nack").length > 0, { onError });
  assert.deepEqual(summary, { done: 0, failed: 1, lost: 0 });
});

test("a failed job waits for a second, and longer with each delivery", async () => {
  for (const [deliveries, delay] of [[1, 1000], [3, 4000], [40, 60_000]]) {
    const fetch = made(1, { deliveries });
    await work(fetch, () => Promise.reject(new Error("no")), () => fetch.bodies("nack").length > 0);
    assert.equal(fetch.bodies("nack")[0].delay_ms, delay);
  }
});

test("a lease that cannot be extended any more is lost, which a handler learns whenever it asks", async () => {
  const fetch = made(1, { extend: () => refusal(403, "forbidden") });
  const [gone, seen] = [promise(), []];
  const handler = async (_job, context) => {
    await gone.done;
    seen.push(context.signal.aborted, context.signal.reason?.code);
  };
  const done = (told) => told.includes("lease_lost") && (gone.resolve(), seen.length > 0);
  const [summary] = await work(fetch, handler, done, { leaseMs: 300 });
  assert.deepEqual([summary, seen, fetch.bodies("ack")], [{ done: 0, failed: 0, lost: 1 }, [true, "lease_lost"], []]);
});

test("a job whose ack gets no answer while its lease lasts is lost, and the worker goes on", async () => {
  const fetch = made(1, { ack: lost });
  const [summary] = await work(fetch, () => {}, (told) => told.includes("no_answer"), { leaseMs: 300 });
  assert.deepEqual(summary, { done: 0, failed: 0, lost: 1 });
  assert.ok(fetch.bodies("ack").length > 1, "the ack was tried once");
});

test("a refused claim ends the work once what it holds is acked", async () => {
  const release = promise();
  const fetch = made(1, { claim: () => (release.resolve(), refusal(403, "forbidden")) });
  const [error] = await work(fetch, () => release.done, () => false, { concurrency: 2 });
  assert.deepEqual([error.code, fetch.bodies("ack").length], ["forbidden", 1]);
});

/** A fetch whose event streams are the given texts, one after the other; it records the sessions and the ids that it was asked for. */
function streaming(...texts) {
  const fetch = async (_input, init) => {
    if (init.method === "POST") {
      fetch.sessions.push(JSON.parse(init.body).topics.t);
      return Response.json({ wid: `wid_${fetch.sessions.length}` });
    }
    fetch.ids.push(init.headers["Last-Event-ID"]);
    return new Response(texts.shift());
  };
  fetch.sessions = [];
  fetch.ids = [];
  return fetch;
}

const event = (name, id, fields) => `${id && `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify({ topic: "t", ...fields })}\n\n`;
const record = (id, to, ...seqs) => event("record", id, { to_seq: to, records: seqs.map(($seq) => ({ $seq })) });
const caughtUp = event("caught-up", "end", { head_seq: 99 });

/** What a follow yields until it has caught up. */
async function followed(fetch, options) {
  const seen = [];
  for await (const e of connect({ fetch }).follow("t", options)) {
    if (e.type === "caught-up") {
      break;
    }
    seen.push(e.seq ?? e.type);
  }
  return seen;
}

test("without an id a session is replaced by one behind what has come", async () => {
  const fetch = streaming(record("", 1, 1), caughtUp);
  assert.deepEqual([await followed(fetch), fetch.sessions, fetch.ids], [[1], [{ from_seq: 0 }, { from_seq: 1 }], [undefined, undefined]]);
});

test("what comes behind the last id comes again, and is yielded once", async () => {
  const fetch = streaming(record("a", 1, 1) + record("", 2, 2), record("b", 3, 2, 3) + caughtUp);
  assert.deepEqual([await followed(fetch), fetch.sessions.length, fetch.ids], [[1, 2, 3], 1, [undefined, "a"]]);
});

test("a new session begins behind what was left out, and where a topic that was created again begins", async () => {
  const gone = `event: error\ndata: {"code":410}\n\n`;
  const again = event("tombstone", "b", { gap_from: 1, gap_to: 9, earliest_seq: 3, reason: "from_seq_too_old" });
  const fetch = streaming(record("a", 9, 1) + gone, again + gone, caughtUp);
  assert.deepEqual([await followed(fetch), fetch.sessions], [[1, "tombstone"], [{ from_seq: 0 }, { from_seq: 9 }, { from_seq: 2 }]]);
});

test("a stream that ends while its topic is there again is lost", async () => {
  const fetch = streaming(event("topic-deleted", "a", {}) + record("b", 1, 1), caughtUp);
  assert.deepEqual([await followed(fetch), fetch.ids], [["deleted", 1], [undefined, "b"]]);
});

test("an advice ends no stream, and a server that stops says when to come back", async () => {
  const advice = `event: error\ndata: {"code":429}\n\n`;
  const stops = `retry: 70\n\nevent: error\ndata: {"code":"server_shutting_down"}\n\n`;
  const fetch = streaming(advice + record("a", 1, 1), stops, stops, caughtUp);
  const lost = [];
  assert.deepEqual(await followed(fetch, { onLost: (e) => lost.push([e.code, e.retryAfterMs]) }), [1]);
  assert.deepEqual([lost.map(([code]) => code), lost[2]], [["no_answer", "shutting_down", "shutting_down"], ["shutting_down", 70]]);
});

test("an id that no header can hold is none, and a hint has bounds", async () => {
  const fetch = streaming(record("a\0", 1, 1), caughtUp);
  assert.deepEqual([await followed(fetch), fetch.ids, fetch.sessions.length], [[1], [undefined, undefined], 2]);
  for (const [hint, ms] of [["0", 50], ["999999999", 60_000], ["soon", 2000]]) {
    const stops = streaming(`retry: ${hint}\n\nevent: error\ndata: {"code":"server_shutting_down"}\n\n`);
    const onLost = (e) => { throw e; };
    await assert.rejects(followed(stops, { onLost }), (e) => (assert.equal(e.retryAfterMs, ms), e.code === "shutting_down"));
  }
});

test("a request has its time besides what the server may wait, comes from no cache and follows no redirect", async () => {
  const inits = [];
  const fetch = (_input, init) => {
    inits.push([init.method, init.redirect, init.cache]);
    return new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)));
  };
  const client = connect({ fetch, timeoutMs: 20, retryMs: 0 });
  await assert.rejects(client.claim("q", { waitMs: 60 }), /nothing within 80 ms/);
  await assert.rejects(client.topic("q"), /nothing within 20 ms/);
  assert.deepEqual(inits, [["POST", "manual", "default"], ["GET", "manual", "no-store"]]);
});

test("calls leave nothing at a signal that outlives them", async () => {
  const { signal } = new AbortController();
  const fetch = made(0);
  await connect({ fetch }).claim("q", { signal });
  await assert.rejects(connect({ fetch: lost }).claim("q", { signal }));
  const refused = [refusal(429, "throttled", {}, { retry_after_ms: 1 })];
  await connect({ fetch: async (...args) => refused.pop() ?? fetch(...args) }).claim("q", { signal }); // with a wait
  assert.equal(getEventListeners(signal, "abort").length, 0);
});
