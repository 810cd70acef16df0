import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, eventually, newTopic, refusal, take, url } from "./kit.js";

const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const seqs = (records) => records.map((r) => r.seq);

async function publish(topic, n) {
  const client = connect();
  for (let i = 0; i < n; i++) {
    await client.publish(topic, { i, text: "é😀" });
  }
}

/** A fetch whose event streams come in pieces of the given size and break off after some bytes each. */
function breaking(size, after) {
  const fetch = async (input, init) => {
    const res = await globalThis.fetch(input, init);
    if (!/\/v0\/watch\//.test(String(input)) || !res.ok) {
      return res;
    }
    fetch.streams.push(init.headers["Last-Event-ID"]);
    const source = res.body.getReader();
    let sent = 0;
    let rest = new Uint8Array();
    return new Response(
      new ReadableStream({
        async pull(to) {
          if (sent >= after()) {
            await source.cancel();
            to.error(new TypeError("terminated"));
            return;
          }
          if (rest.length === 0) {
            const { value, done } = await source.read();
            if (done) {
              to.close();
              return;
            }
            rest = value;
          }
          to.enqueue(rest.slice(0, size));
          sent += Math.min(size, rest.length);
          rest = rest.slice(size);
        },
        cancel: () => source.cancel(),
      }),
    );
  };
  fetch.streams = [];
  return fetch;
}

test("a follow yields the backlog and then what is written", async () => {
  const topic = newTopic();
  await publish(topic, 3);
  const events = connect().follow(topic, { includeTags: true });
  const old = await take(events, 3);
  assert.deepEqual([seqs(old), old[2].topic, old[2].data], [[1, 2, 3], topic, { i: 2, text: "é😀" }]);
  assert.deepEqual((await events.next()).value, { type: "caught-up", topic, headSeq: 3 });
  await connect().publish(topic, "new", { tag: "t" });
  const [fresh] = await take(events, 1);
  assert.deepEqual([fresh.seq, fresh.data, fresh.tag], [4, "new", "t"]);
  await events.return();
});

test("it begins where it is told to", async () => {
  const [a, b] = [newTopic(), newTopic()];
  await publish(a, 3);
  await publish(b, 3);
  const client = connect();
  const events = client.follow({ [a]: 2n, [b]: "tail" });
  assert.deepEqual(seqs(await take(events, 1)), [3]);
  await publish(b, 1);
  const [record] = await take(events, 1);
  assert.deepEqual([record.topic, record.seq], [b, 4]);
  await events.return();
  const both = client.follow([a, b], { from: 1 });
  assert.deepEqual(seqs(await take(both, 5)).sort(), [2, 2, 3, 3, 4]);
  await both.return();
});

test("events are read in whatever pieces they come", async () => {
  const topic = newTopic();
  await publish(topic, 20);
  const events = connect({ fetch: breaking(1, () => Infinity) }).follow(topic, { limit: 7 });
  const records = await take(events, 20);
  assert.deepEqual(seqs(records), numbers(1, 20));
  assert.equal(records[19].data.text, "é😀");
  await events.return();
});

test("over lost connections nothing is missed and nothing comes twice", async () => {
  const topic = newTopic();
  await publish(topic, 100);
  const fetch = breaking(64, () => 300 + Math.random() * 900);
  const losses = [];
  const events = connect({ fetch }).follow(topic, { limit: 3, onLost: (e) => losses.push(e.code) });
  const later = publish(topic, 20);
  assert.deepEqual(seqs(await take(events, 120)), numbers(1, 120));
  await later;
  await events.return();
  assert.ok(losses.length >= 5 && losses.every((code) => code === "no_answer"), `lost: ${losses}`);
  assert.ok(fetch.streams.slice(1).some((id) => id !== undefined), "no stream was resumed by its Last-Event-ID");
});

test("a session that is gone is replaced by one that goes on behind the last record", async () => {
  const topic = newTopic();
  await publish(topic, 2);
  let gone = 0;
  let sessions = 0;
  const broken = breaking(1 << 20, () => (gone === 0 ? 100 : Infinity));
  const fetch = async (input, init) => {
    if (init.method === "POST") {
      sessions++;
    } else if (init.headers["Last-Event-ID"] && gone++ === 0) {
      return broken(`${url}/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA`, init); // the server says 410 on the stream
    }
    return broken(input, init);
  };
  const events = connect({ fetch }).follow(topic, { from: 0 });
  assert.deepEqual(seqs(await take(events, 2)), [1, 2]);
  await publish(topic, 2);
  assert.deepEqual(seqs(await take(events, 2)), [3, 4]);
  assert.equal(sessions, 2);
  await events.return();
});

test("a session that is another key's by now, as after a change of its rights, is replaced", async () => {
  const topic = newTopic();
  await publish(topic, 2);
  let refused = 0;
  const broken = breaking(1 << 20, () => (refused === 0 ? 100 : Infinity));
  const fetch = (input, init) =>
    init.headers["Last-Event-ID"] && refused++ === 0 ? refusal(401, "unauthorized") : broken(input, init);
  const events = connect({ fetch: async (input, init) => fetch(input, init) }).follow(topic, { from: 0 });
  assert.deepEqual(seqs(await take(events, 2)), [1, 2]);
  await publish(topic, 2);
  assert.deepEqual(seqs(await take(events, 2)), [3, 4]);
  assert.equal(refused, 1);
  await events.return();
});

test("an event that is not what the API says is an error of the call, and one of a later server is left out", async () => {
  const wrong = ["null", "7", "[]", "{", '{"topic":"t"}', '{"topic":"t","to_seq":1,"records":[null]}', '{"topic":"t","to_seq":"1","records":[]}', '{"topic":"t","gap_from":1}'];
  const cases = ["record", "tombstone", "caught-up"].flatMap((event) => wrong.map((data) => [event, data]));
  for (const [event, data] of [...cases, ["topic-deleted", "null"], ["error", "null"]]) {
    const fetch = async (_input, init) =>
      new Response(init.method === "POST" ? '{"wid":"w"}' : `event: novelty\ndata: ${data}\n\nid: i\nevent: ${event}\ndata: ${data}\n\n`);
    await assert.rejects(connect({ fetch }).follow("t").next(), (e) => {
      assert.deepEqual([e.name, e.code], ["WeirError", "unexpected_answer"], `${event} ${data}: ${e.stack}`);
      return true;
    });
  }
});

test("a stream that is refused at once ends the follow", async () => {
  const topic = newTopic();
  await publish(topic, 1);
  const fetch = async (input, init) => (init.method === "GET" ? refusal(401, "unauthorized") : globalThis.fetch(input, init));
  await assert.rejects(take(connect({ fetch }).follow(topic), 1), { code: "unauthorized", status: 401 });
});

test("what was lost is announced", async () => {
  const topic = newTopic();
  await connect().putTopic(topic, { capRecords: 3 });
  await publish(topic, 5);
  const events = connect().follow(topic, { from: 1 });
  const { value } = await events.next();
  assert.deepEqual([value.type, value.gapFrom, value.gapTo, value.recreated], ["tombstone", 2, 2, false]);
  assert.deepEqual(seqs(await take(events, 3)), [3, 4, 5]);
  await events.return();
});

test("a topic that is created again is read from its beginning, at the next connection at the latest", async () => {
  const [topic, other] = [newTopic(), newTopic()];
  await publish(topic, 5);
  await connect().putTopic(other); // the stream goes on while the first one is gone
  let cut = false;
  const events = connect({ fetch: breaking(1 << 20, () => (cut ? 0 : Infinity)) }).follow([topic, other]);
  await take(events, 5);
  const next = async (...types) => {
    for (;;) {
      const { value } = await events.next();
      if (types.includes(value.type)) {
        return value;
      }
    }
  };
  await connect().deleteTopic(topic);
  assert.equal((await next("deleted", "tombstone")).type, "deleted");
  await publish(topic, 2);
  cut = true;
  await publish(other, 1); // the last that comes over the first connection
  assert.equal((await next("record", "tombstone")).topic, other);
  setTimeout(() => (cut = false), 20);
  assert.equal((await next("record", "tombstone")).recreated, true);
  assert.deepEqual(seqs(await take(events, 2)), [1, 2]);
  await events.return();
});

test("it ends when the last topic is deleted", async () => {
  const topic = newTopic();
  await publish(topic, 1);
  const types = [];
  for await (const event of connect().follow(topic)) {
    types.push(event.type);
    if (event.type === "caught-up") {
      await connect().deleteTopic(topic);
    }
  }
  assert.deepEqual(types, ["record", "caught-up", "deleted"]);
});

test("a topic that is not there is an error", async () => {
  await assert.rejects(connect().follow(newTopic()).next(), { name: "WeirError", code: "topic_not_found", status: 404 });
});

test("leaving the loop closes the connection", async () => {
  const topic = newTopic();
  await publish(topic, 1);
  let signal;
  const fetch = (input, init) => {
    signal = init.signal;
    return globalThis.fetch(input, init);
  };
  for await (const event of connect({ fetch }).follow(topic)) {
    assert.equal(event.seq, 1);
    break;
  }
  assert.equal(signal.aborted, true);
});

test("a connection that says nothing for three heartbeats is given up", async () => {
  const topic = newTopic();
  await publish(topic, 1);
  let streams = 0;
  const fetch = async (input, init) => {
    if (init.method === "GET" && streams++ === 0) {
      return new Response(new ReadableStream({ start: (to) => init.signal.addEventListener("abort", () => to.error(init.signal.reason)) }));
    }
    return globalThis.fetch(input, init);
  };
  const events = connect({ fetch }).follow(topic, { heartbeatMs: 1000 });
  assert.deepEqual(seqs(await take(events, 1)), [1]);
  await events.return();
  await eventually("the second stream", () => streams === 2);
});
