import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { aborted, connect, eventually, losing, newTopic, promise, refusal, refusing, test } from "./kit.js";

const quiet = () => {};

async function queueOf(n, config = {}) {
  const topic = newTopic();
  const client = connect();
  await client.putTopic(topic, { type: "queue", ...config });
  if (n > 0) {
    await client.publishBatch(topic, Array.from({ length: n }, (_, i) => ({ data: i })));
  }
  return topic;
}

const isEmpty = (topic) => async () => (await connect().topic(topic)).count === 0;

test("every job is done once, and no more at a time than asked for", async () => {
  const topic = await queueOf(500);
  const stop = new AbortController();
  const seen = [];
  let running = 0;
  let most = 0;
  const working = connect().work(
    topic,
    async (job) => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 1));
      running--;
      seen.push(job.data);
    },
    { concurrency: 7, signal: stop.signal },
  );
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  assert.deepEqual(await working, { done: 500, failed: 0, lost: 0 });
  assert.deepEqual(seen.sort((a, b) => a - b), Array.from({ length: 500 }, (_, i) => i));
  assert.equal(most, 7);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
});

test("what a server takes in smaller calls only is extended and acked in those", async () => {
  const topic = await queueOf(10);
  const stop = new AbortController();
  const extended = new Set();
  const fetch = async (input, init) => {
    const { seqs = [] } = init.body ? JSON.parse(init.body) : {};
    if (seqs.length > 3) {
      return refusal(400, "batch_too_large");
    }
    const res = await globalThis.fetch(input, init);
    if (/extend$/.test(String(input))) {
      seqs.forEach((seq) => extended.add(seq));
    }
    return res;
  };
  const working = connect({ fetch }).work(topic, () => eventually("all to be extended", async () => extended.size === 10), {
    concurrency: 10,
    leaseMs: 900,
    signal: stop.signal,
    onError: quiet,
  });
  try {
    await eventually("the queue is empty", isEmpty(topic));
  } finally {
    stop.abort(); // or a worker that fails would work for ever
  }
  assert.deepEqual(await working, { done: 10, failed: 0, lost: 0 });
});

test("what is no handler is refused before a job is taken", async () => {
  const topic = await queueOf(1);
  for (const handler of [undefined, null, {}, "handle"]) {
    await assert.rejects(connect().work(topic, handler, { onError: quiet, signal: AbortSignal.timeout(1000) }), TypeError);
  }
  const [job] = await connect().claim(topic, { max: 1 });
  assert.equal(job.deliveries, 1);
});

test("a name that is no string is refused", async () => {
  for (const name of [undefined, null, 5, true]) {
    await assert.rejects(async () => connect().publish(name, 1), TypeError);
    await assert.rejects(async () => connect().topic(name), TypeError);
  }
});

test("jobs that are done in the same turn are acked in one call", async () => {
  const topic = await queueOf(16);
  const stop = new AbortController();
  const calls = [];
  const fetch = (input, init) => {
    calls.push(String(input).split("/").pop());
    return globalThis.fetch(input, init);
  };
  const together = promise();
  let begun = 0;
  const handler = async () => {
    if (++begun === 16) {
      together.resolve();
      stop.abort();
    }
    await together.done;
  };
  const summary = await connect({ fetch }).work(topic, handler, { concurrency: 16, signal: stop.signal });
  assert.deepEqual(summary, { done: 16, failed: 0, lost: 0 });
  assert.deepEqual(calls, ["claim", "ack"]);
});

test("a handler that takes longer than a lease keeps its job", async () => {
  const topic = await queueOf(1);
  const stop = new AbortController();
  const [begun, released] = [promise(), promise()];
  const others = [];
  const leaseMs = 2000;
  const working = connect().work(
    topic,
    async (_job, { signal }) => {
      begun.resolve();
      await released.done;
      assert.equal(signal.aborted, false);
    },
    { leaseMs, signal: stop.signal },
  );
  await begun.done;
  const other = connect();
  for (let i = 0; i < 2; i++) {
    others.push(...(await other.claim(topic, { waitMs: leaseMs }))); // waits: the lease would end in it
  }
  released.resolve();
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  assert.deepEqual([others, await working], [[], { done: 1, failed: 0, lost: 0 }]);
});

test("an extension that gets no answer is tried again before the lease ends", async () => {
  const topic = await queueOf(1);
  const stop = new AbortController();
  const [begun, released] = [promise(), promise()];
  let extensions = 0;
  const fetch = (input, init) => {
    if (!String(input).endsWith("/extend") || ++extensions !== 2) {
      return globalThis.fetch(input, init);
    }
    return new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)));
  };
  const leaseMs = 3000;
  const handler = async () => {
    begun.resolve();
    await released.done;
  };
  const working = connect({ fetch }).work(topic, handler, { leaseMs, signal: stop.signal, onError: quiet });
  await begun.done;
  const others = await connect().claim(topic, { waitMs: leaseMs + 3000 });
  stop.abort();
  released.resolve();
  assert.deepEqual([others, await working], [[], { done: 1, failed: 0, lost: 0 }]);
});

test("a job whose handler throws comes again, as often as the queue allows", async () => {
  const letters = newTopic();
  const topic = await queueOf(2, { maxDeliveries: 3, deadLetter: letters });
  const stop = new AbortController();
  const tries = { 0: [], 1: [] };
  const told = [];
  const working = connect().work(
    topic,
    (job) => {
      tries[job.data].push(job.deliveries);
      if (job.data === 0 || job.deliveries < 2) {
        throw new Error(`bad ${job.data}`);
      }
    },
    { retryDelayMs: 0, concurrency: 2, signal: stop.signal, onError: (e, job) => told.push([e.message, job.data]) },
  );
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  assert.deepEqual(await working, { done: 1, failed: 4, lost: 0 });
  assert.deepEqual(tries, { 0: [1, 2, 3], 1: [1, 2] });
  assert.deepEqual(told.sort(), [["bad 0", 0], ["bad 0", 0], ["bad 0", 0], ["bad 1", 1]]);
  const dead = await connect().diff(letters);
  assert.deepEqual(dead.records.map((r) => [r.data, r.meta.$dead_letter_deliveries]), [[0, "3"]]);
});

test("a failed job is delayed as the worker says", async () => {
  const topic = await queueOf(1);
  const stop = new AbortController();
  const working = connect().work(topic, () => Promise.reject(new Error("no")), {
    retryDelayMs: (job) => 3_600_000 * job.deliveries,
    signal: stop.signal,
    onError: quiet,
  });
  await eventually("the job is delayed", async () => (await connect().topic(topic)).queue.delayed === 1);
  stop.abort();
  assert.equal((await working).failed, 1);
});

test("a delay that the server would refuse gives the job back all the same", async () => {
  const delays = [Number.NaN, "soon", -5, 0.4, 1e300, Number.POSITIVE_INFINITY, () => { throw new Error("no delay"); }];
  const topic = await queueOf(delays.length);
  const stop = new AbortController();
  const told = [];
  const working = connect().work(topic, () => Promise.reject(new Error("no")), {
    retryDelayMs: (job) => (job.deliveries > 1 ? 3_600_000 : typeof delays[job.data] === "function" ? delays[job.data]() : delays[job.data]),
    signal: stop.signal,
    onError: (e) => told.push(e.message),
  });
  await eventually("all are delayed", async () => (await connect().topic(topic)).queue.delayed === delays.length);
  stop.abort();
  assert.deepEqual(await working, { done: 0, failed: delays.length + 5, lost: 0 });
  assert.deepEqual(told.filter((m) => m !== "no").sort(), ["no delay", "retryDelayMs is no number", "retryDelayMs is no number"]);
});

test("an abort lets handlers finish and takes nothing more", async () => {
  const topic = await queueOf(5);
  const stop = new AbortController();
  const released = promise();
  const begun = [];
  const working = connect().work(
    topic,
    async (job, { signal }) => {
      begun.push(job.data);
      await released.done;
      assert.equal(signal.aborted, false);
    },
    { concurrency: 2, leaseMs: 2000, signal: stop.signal },
  );
  await eventually("two handlers run", () => begun.length === 2);
  stop.abort();
  const early = await Promise.race([working, new Promise((resolve) => setTimeout(resolve, 3000, "waits"))]); // longer than the lease
  assert.equal(early, "waits");
  released.resolve();
  assert.deepEqual(await working, { done: 2, failed: 0, lost: 0 });
  assert.deepEqual(begun, [0, 1]);
  const { queue, count } = await connect().topic(topic);
  assert.deepEqual([queue.ready, queue.inFlight, count], [3, 0, 3]);
});

test("an abort while a claim waits takes no job that comes afterwards", async () => {
  const topic = await queueOf(0);
  const stop = new AbortController();
  const working = connect().work(topic, () => assert.fail("it has a job"), { signal: stop.signal, onError: quiet });
  setTimeout(() => stop.abort(), 100);
  await working;
  await connect().publish(topic, 1);
  await eventually("the job is free", async () => (await connect().claim(topic, { waitMs: 1000 })).length === 1);
});

test("a handler is told that its lease is lost, and its job is not acked", async () => {
  const topic = await queueOf(1);
  const client = connect({ node: newTopic() });
  const stop = new AbortController();
  const reasons = [];
  const working = client.work(
    topic,
    async (job, { signal }) => {
      if (job.deliveries > 1) {
        return;
      }
      await connect({ node: client.node }).nack(topic, job); // as if the lease had ended
      await aborted(signal);
      reasons.push(signal.reason.code);
    },
    { leaseMs: 1500, signal: stop.signal, onError: (e) => reasons.push(e.code) },
  );
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  assert.deepEqual(await working, { done: 1, failed: 0, lost: 1 });
  assert.deepEqual(reasons.sort(), ["lease_lost", "lease_lost"]);
});

test("a job that comes back while its first handler runs is done, and only the first lease counts as lost", async () => {
  const topic = await queueOf(1);
  const client = connect({ node: newTopic() });
  const stop = new AbortController();
  const lost = [];
  const handler = async (job, { signal }) => {
    if (job.deliveries === 1) {
      await connect({ node: client.node }).nack(topic, job); // as if the lease had ended
      await aborted(signal);
    } else {
      await new Promise((resolve) => setTimeout(resolve, 1500)); // two extensions
    }
    lost.push([job.deliveries, signal.aborted]);
  };
  const working = client.work(topic, handler, { concurrency: 2, leaseMs: 1500, signal: stop.signal, onError: quiet });
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  assert.deepEqual(await working, { done: 1, failed: 0, lost: 1 });
  assert.deepEqual(lost, [[1, true], [2, false]]);
});

test("a worker outlives refusals and lost answers", async () => {
  const topic = await queueOf(20);
  const stop = new AbortController();
  const errors = [];
  const refused = refusing(2, () => refusal(503, "not_ready", { "Retry-After": "0" }));
  const lost = losing(3, /\/ack$/);
  const fetch = (input, init) => (String(input).endsWith("/claim") ? refused(input, init) : lost(input, init));
  const working = connect({ fetch }).work(topic, quiet, { concurrency: 3, signal: stop.signal, onError: (e) => errors.push(e.code) });
  await eventually("the queue is empty", isEmpty(topic));
  stop.abort();
  const summary = await working;
  assert.equal(lost.lost, 3);
  // An ack that was repeated is skipped, for the first one has done it; the client cannot tell.
  assert.equal(summary.done + summary.lost, 20);
  assert.equal(errors.filter((code) => code === "not_ready").length, 2);
});

test("a claim whose answer is lost is followed by a small one, and those by larger ones", async () => {
  const topic = await queueOf(40);
  const stop = new AbortController();
  const asked = [];
  const lost = losing(1, /\/claim$/);
  const fetch = (input, init) => {
    if (String(input).endsWith("/claim")) {
      asked.push(JSON.parse(init.body).max);
    }
    return lost(input, init);
  };
  const hold = (job, { signal }) => aborted(AbortSignal.any([signal, stop.signal]));
  const working = connect({ fetch }).work(topic, hold, { concurrency: 16, signal: stop.signal, onError: quiet });
  await eventually("it holds all it may", () => asked.reduce((a, b) => a + b, 0) >= 32);
  stop.abort();
  await working;
  assert.deepEqual(asked, [16, 1, 2, 4, 8, 1]);
});

test("a claim that can never succeed ends the work", async () => {
  await assert.rejects(connect().work(newTopic(), quiet), { name: "WeirError", code: "topic_not_found", status: 404 });
  const log = newTopic();
  await connect().putTopic(log);
  await assert.rejects(connect().work(log, quiet), { name: "WeirError", code: "not_a_queue", status: 409 });
  await assert.rejects(connect().work(log, quiet, { concurrency: 0 }), RangeError);
  await assert.rejects(connect().work(log, quiet, { leaseMs: 99 }), RangeError);
  await assert.rejects(connect().work(log, quiet, { leaseMs: NaN }), RangeError);
});
