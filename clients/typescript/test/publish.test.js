import assert from "node:assert/strict";
import { test } from "node:test";
import { WeirError } from "@weirmq/client";
import { connect, losing, newTopic, noServer, refusal, refusing, url } from "./kit.js";

const isError = (code, status) => (e) => e instanceof WeirError && e.code === code && e.status === status && e.message !== "";

test("what is published is read", async () => {
  const client = connect();
  const topic = newTopic();
  const one = await client.publish(topic, { snake_case: "stays" }, { tag: "t", node: "n", meta: { some_key: 1 }, fairKey: "f", priority: "high" });
  assert.equal(one.created, true);
  const two = await client.publishBatch(topic, [{ data: "b" }, { data: null }]);
  assert.deepEqual([two.firstSeq, two.lastSeq, two.seqs, two.count], [2, 3, [2, 3], 2]);
  const read = await client.diff(topic, { includeTags: true });
  const { ts, ...first } = read.records[0];
  assert.ok(Math.abs(ts - Date.now()) < 3_600_000);
  assert.deepEqual(first, { seq: 1, node: "n", tag: "t", priority: "high", fairKey: "f", data: { snake_case: "stays" }, meta: { some_key: 1 } });
  assert.deepEqual([read.nextFromSeq, read.caughtUp, read.tombstone], [3, true, null]);
  assert.deepEqual((await client.diff(topic, { fromSeq: 1, limit: 1 })).records.map((r) => r.data), ["b"]);
});

test("a write whose answer is lost is sent again and stored once", async () => {
  const fetch = losing(3, /topics/);
  const topic = newTopic();
  const result = await connect({ fetch }).publishBatch(topic, [{ data: 1 }, { data: 2 }]);
  assert.equal(fetch.lost, 3);
  assert.deepEqual([result.deduped, result.seqs], [true, [1, 2]]);
  assert.deepEqual((await connect().diff(topic)).records.map((r) => r.data), [1, 2]);
});

test("each call has a key of its own, and a key that is given works across calls", async () => {
  const client = connect();
  const topic = newTopic();
  await client.publish(topic, "same");
  await client.publish(topic, "same");
  const first = await client.publish(topic, "keyed", { idempotencyKey: "k" });
  const again = await client.publish(topic, "keyed", { idempotencyKey: "k" });
  assert.deepEqual([first.firstSeq, first.deduped, again.firstSeq, again.deduped], [3, false, 3, true]);
  const other = await client.publish(topic, "other", { idempotencyKey: "k" });
  assert.equal(other.warnings[0].code, "idempotency_key_reused");
  await assert.rejects(client.publish(topic, "other", { idempotencyKey: "k", strict: true }), isError("idempotency_key_reused", 409));
  assert.equal((await client.topic(topic)).headSeq, 3);
});

test("without a key a write whose answer is lost is not sent again", async () => {
  const fetch = losing(1, /topics/);
  const topic = newTopic();
  await assert.rejects(connect({ fetch }).publish(topic, 1, { idempotencyKey: null }), isError("no_answer", 0));
  assert.equal((await connect().topic(topic)).count, 1);
});

test("a delete whose answer is lost does not take what is written after it", async () => {
  const topic = newTopic();
  const lost = losing(1, /./);
  const fetch = async (input, init) => {
    try {
      return await lost(input, init);
    } catch (e) {
      await connect().publish(topic, "new");
      throw e;
    }
  };
  await connect().publish(topic, "old");
  await assert.rejects(connect({ fetch }).deleteTopic(topic), isError("no_answer", 0));
  assert.deepEqual((await connect().diff(topic)).records.map((r) => r.data), ["new"]);
});

test("what found no connection is sent again, with a key or without", async () => {
  for (const idempotencyKey of [undefined, null]) {
    const fetch = refusing(2, noServer);
    const topic = newTopic();
    await connect({ fetch }).publish(topic, 1, { idempotencyKey });
    assert.equal(fetch.at.length, 3);
  }
});

test("429, 503 and 507 are tried again no earlier than Retry-After says, scattered", async () => {
  const waits = [];
  const codes = { 429: "throttled", 503: "not_ready", 507: "disk_full" };
  await Promise.all(
    [429, 503, 507, 429, 503].map(async (status) => {
      const fetch = refusing(1, () => refusal(status, codes[status], { "Retry-After": "1" }));
      await connect({ fetch }).publish(newTopic(), 1, { idempotencyKey: null });
      waits.push(fetch.at[1] - fetch.at[0]);
    }),
  );
  assert.ok(waits.every((ms) => ms >= 999 && ms < 20_000), `waited ${waits} ms`);
  assert.ok(Math.max(...waits) - Math.min(...waits) > 5, `all came back at once: ${waits} ms`);
});

test("the milliseconds of the detail go before the seconds of the header", async () => {
  const fetch = refusing(1, () => refusal(429, "throttled", { "Retry-After": "30" }, { reason: "load_shedding", retry_after_ms: 60 }));
  await connect({ fetch }).publish(newTopic(), 1);
  assert.ok(fetch.at[1] - fetch.at[0] >= 59);
});

test("Retry-After may be a date, which counts from that of the answer", async () => {
  const [noon, then, later] = ["Wed, 21 Oct 2015 12:00:00 GMT", "Wed, 21 Oct 2015 12:00:07 GMT", "Wed, 21 Oct 2201 12:00:00 GMT"];
  for (const [date, header, ms] of [
    [noon, then, 7000], // of clocks that are years behind
    [noon, "Wednesday, 21-Oct-15 12:00:07 GMT", 7000],
    [noon, later, 60_000],
    [then, noon, 0],
    ["", later, 60_000],
    ["", then, 0],
    [noon, "soon", 0],
    [noon, "-7", 0],
    [noon, "99999999999999999999", 60_000],
  ]) {
    const fetch = async () => refusal(503, "not_ready", { Date: date, "Retry-After": header });
    await assert.rejects(connect({ fetch, retryMs: 0 }).topic("t"), (e) => {
      assert.equal(e.retryAfterMs, ms, `${header} at ${date}`);
      return e instanceof WeirError;
    });
  }
});

test("a call gives up when its next try would come after retryMs, and says what the server said", async () => {
  const fetch = refusing(9, () => refusal(429, "throttled", { "Retry-After": "60" }, { limit: "max_topics", max: 1 }));
  await assert.rejects(connect({ fetch, retryMs: 100 }).publish(newTopic(), 1), (e) => {
    assert.deepEqual([e.code, e.status, e.message, e.detail.limit, e.retryAfterMs], ["throttled", 429, "it is throttled", "max_topics", 60_000]);
    return e instanceof WeirError;
  });
  assert.equal(fetch.at.length, 1);
  await assert.rejects(connect({ fetch: noServer, retryMs: 0 }).publish(newTopic(), 1), isError("unreachable", 0));
});

test("a 500 is tried again only if that stores nothing twice", async () => {
  const once = () => refusing(1, () => refusal(500, "internal"));
  await connect({ fetch: once() }).publish(newTopic(), 1);
  await assert.rejects(connect({ fetch: once() }).publish(newTopic(), 1, { idempotencyKey: null }), isError("internal", 500));
});

test("so is a 5xx of something in between", async () => {
  for (const status of [502, 504, 520, 521, 530]) {
    const once = () => refusing(1, () => new Response("the origin is down", { status }));
    await connect({ fetch: once() }).publish(newTopic(), 1);
    await assert.rejects(connect({ fetch: once() }).publish(newTopic(), 1, { idempotencyKey: null }), isError("unexpected_answer", status));
  }
});

test("a 503 of a proxy that has lost the server is tried again only if that stores nothing twice", async () => {
  const envoy = "upstream connect error or disconnect/reset before headers. reset reason: ";
  const varnish = "<h1>Error 503 Backend fetch failed</h1><hr><p>Varnish cache server</p>";
  for (const text of [envoy + "connection termination", envoy + "remote reset", varnish]) {
    const once = () => refusing(1, () => new Response(text, { status: 503 }));
    await connect({ fetch: once() }).publish(newTopic(), 1);
    await assert.rejects(connect({ fetch: once() }).publish(newTopic(), 1, { idempotencyKey: null }), isError("no_answer", 503));
  }
  for (const reason of ["remote connection failure, transport failure reason: delayed connect error: 111", "overflow"]) {
    const fetch = refusing(1, () => new Response(envoy + reason, { status: 503 }));
    await connect({ fetch }).publish(newTopic(), 1, { idempotencyKey: null });
    assert.equal(fetch.at.length, 2);
  }
});

test("refusals of the server are WeirErrors and are not tried again", async () => {
  const client = connect();
  await assert.rejects(client.diff(newTopic()), isError("topic_not_found", 404));
  await assert.rejects(client.publish(newTopic(), 1, { create: false }), isError("topic_not_found", 404));
  await assert.rejects(client.putTopic(newTopic(), { tpye: "queue" }), isError("invalid_request", 400));
  await assert.rejects(client.publishBatch(newTopic(), []), isError("invalid_request", 400));
  await assert.rejects(client.publish("../metrics", 1), TypeError);
  await assert.rejects(connect({ fetch: async () => new Response("<html>", { status: 404 }) }).diff("t"), isError("unexpected_answer", 404));
  await assert.rejects(connect({ fetch: async () => new Response("<html>") }).diff("t"), isError("unexpected_answer", 200));
});

test("an answer of something else is no success", async () => {
  const answering = (answer) => connect({ fetch: async () => Response.json(answer) });
  for (const answer of [null, [], 7, {}, { status: "ok" }]) {
    const client = answering(answer);
    const calls = [client.publish("t", 1), client.diff("t"), client.claim("t"), client.ack("t", { seq: 1, leaseId: "x" }), client.topic("t"), client.putTopic("t"), client.deleteTopic("t"), client.follow("t").next()];
    for (const call of calls) {
      await assert.rejects(call, isError("unexpected_answer", 200));
    }
  }
  for (const count of [0, 2, "1"]) {
    await assert.rejects(answering({ count }).publish("t", 1), isError("unexpected_answer", 200)); // nobody says that it is stored
  }
  assert.equal((await answering({ count: 3, deduped: true }).publish("t", 1)).count, 3); // of the first write under its key
});

test("a redirect names the address to use", async () => {
  const moved = async () => new Response("", { status: 301, headers: { Location: "https://weir.example/v0/topics/t" } });
  await assert.rejects(connect({ fetch: moved }).publish("t", 1), (e) => isError("unexpected_answer", 301)(e) && e.message.includes("https://weir.example: use that address"));
});

test("answers come unpacked from the real server", async () => {
  const packings = [];
  const fetch = async (input, init) => {
    const res = await globalThis.fetch(input, init);
    packings.push(res.headers.get("Content-Encoding"));
    return res;
  };
  const client = connect({ fetch });
  const topic = newTopic();
  await client.publish(topic, "x".repeat(5000));
  assert.equal((await client.diff(topic)).records[0].data.length, 5000);
  assert.deepEqual(packings, [null, null]);
});

test("a request without an answer ends after timeoutMs", async () => {
  const fetch = (_input, init) => new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)));
  await assert.rejects(connect({ fetch, timeoutMs: 20, retryMs: 0 }).diff("t"), isError("no_answer", 0));
});

test("a timeoutMs without end is none", async () => {
  const fetch = async (input, init) => {
    await new Promise((resolve) => setTimeout(resolve, 50));
    init.signal.throwIfAborted();
    return globalThis.fetch(input, init);
  };
  for (const timeoutMs of [Infinity, 2 ** 31]) {
    await connect({ fetch, timeoutMs, retryMs: 0 }).publish(newTopic(), 1);
  }
});

test("a key that no header can hold is in no error", async () => {
  for (const key of ["secret\nsecret", "secret\u20ac", () => "secret\0"]) {
    for (const call of [(c) => c.topic("t"), (c) => c.follow("t").next()]) {
      await assert.rejects(call(connect({ key, retryMs: 0 })), (e) => e instanceof TypeError && !e.message.includes("secret"));
    }
  }
  await connect({ key: "secret\n" }).publish(newTopic(), 1); // as a file ends
});

test("an address that is no server's is refused with what it has to begin with", async () => {
  const { Client } = await import("@weirmq/client");
  for (const url of ["127.0.0.1:4000", "localhost:4000", ":secret@127.0.0.1:4000", "redis://127.0.0.1", ""]) {
    assert.throws(() => new Client(url), { name: "TypeError", message: "a weir server's URL begins with http:// or https://" });
  }
});

test("the key goes into the header, also the one of the URL or of a function", async () => {
  const { Client } = await import("@weirmq/client");
  const sent = [];
  const fetch = async (input, init) => {
    sent.push([String(input), init.headers.Authorization]);
    return new Response('{"deleted":false}');
  };
  await new Client("http://127.0.0.1:1/", { fetch, key: "k1" }).deleteTopic("a:b");
  await new Client("http://:k%202@127.0.0.1:1/below", { fetch }).deleteTopic("t");
  assert.deepEqual(sent, [
    ["http://127.0.0.1:1/v0/topics/a%3Ab", "Bearer k1"],
    ["http://127.0.0.1:1/below/v0/topics/t", "Bearer k 2"],
  ]);
  let n = 0;
  const client = new Client("http://:old@127.0.0.1:1", { fetch, key: async () => `token ${++n}` });
  await client.deleteTopic("t");
  await client.deleteTopic("t");
  assert.deepEqual(sent.slice(2).map(([, header]) => header), ["Bearer token 1", "Bearer token 2"]);
  const why = new Error("signed out");
  await assert.rejects(new Client(url, { key: () => Promise.reject(why) }).deleteTopic("t"), (e) => e === why);
  assert.throws(() => new Client("redis://localhost"), TypeError);
  assert.throws(() => new Client("http://:se%ret@127.0.0.1:1"), (e) => e instanceof TypeError && e.message.includes("%25") && !e.message.includes("se%"));
  assert.equal((await new Client(url).deleteTopic(newTopic())), false);
});
