import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, losing, newTopic } from "./kit.js";

async function newQueue(client, config = {}) {
  const topic = newTopic();
  await client.putTopic(topic, { type: "queue", ...config });
  return topic;
}

test("a claim waits for a job", async () => {
  const client = connect();
  const topic = await newQueue(client);
  assert.deepEqual(await client.claim(topic), []);
  const waiting = client.claim(topic, { waitMs: 30_000, leaseMs: 60_000 });
  await client.publish(topic, { mail: 1 });
  const [job] = await waiting;
  assert.deepEqual([job.seq, job.data, job.deliveries, typeof job.leaseId], [1, { mail: 1 }, 1, "string"]);
});

test("ack deletes, nack gives back, extend lengthens", async () => {
  const client = connect();
  const topic = await newQueue(client);
  await client.publishBatch(topic, [1, 2, 3].map((data) => ({ data })));
  const [a, b, c] = await client.claim(topic, { max: 10 });
  assert.deepEqual((await client.ack(topic, a)).skipped, []);
  assert.deepEqual((await client.nack(topic, b, { started: false })).skipped, []);
  assert.deepEqual((await client.nack(topic, [c], { delayMs: 3_600_000 })).skipped, []);
  const { queue } = await client.topic(topic);
  assert.deepEqual([queue.ready, queue.inFlight, queue.delayed], [1, 0, 1]);
  const [again] = await client.claim(topic);
  assert.deepEqual([again.seq, again.deliveries], [2, 1]);
  assert.deepEqual((await client.extend(topic, again, { leaseMs: 60_000 })).skipped, []);
  assert.deepEqual((await client.extend(topic, [a, b, again], { leaseMs: 60_000 })).skipped, [1, 2]);
});

test("a call with the lease of an earlier delivery touches nothing", async () => {
  const client = connect();
  const topic = await newQueue(client);
  await client.publish(topic, 1);
  const [old] = await client.claim(topic);
  await client.nack(topic, old);
  const [job] = await client.claim(topic);
  assert.deepEqual((await client.ack(topic, old)).skipped, [1]);
  assert.deepEqual((await client.ack(topic, job)).skipped, []);
});

test("an ack whose answer is lost is sent again", async () => {
  const fetch = losing(1, /\/ack$/);
  const client = connect({ fetch });
  const topic = await newQueue(client);
  await client.publish(topic, 1);
  const jobs = await client.claim(topic);
  await client.ack(topic, jobs);
  assert.equal(fetch.lost, 1);
  assert.equal((await client.topic(topic)).count, 0);
});

test("a claim whose answer is lost is not sent again", async () => {
  const fetch = losing(1, /\/claim$/);
  const client = connect({ fetch });
  const topic = await newQueue(client);
  await client.publishBatch(topic, [{ data: 1 }, { data: 2 }]);
  await assert.rejects(client.claim(topic), { name: "WeirError", code: "no_answer" });
  assert.equal((await client.topic(topic)).queue.inFlight, 1);
});
