// Reads lines "WORK SIDE TOPIC COUNT" and does each once; answers with the seconds it took, and those of CPU.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { Client } from "@weirmq/client";

const url = process.env.WEIR_URL;
const atOnce = 16;
const leaseMs = 30_000;
const timeoutMs = 30_000; // of a request, besides what it waits by itself
const waitMs = 30_000; // of a claim
const data = { id: 7, text: "x".repeat(200) };
const client = new Client(url);

async function post(path, body, waitMs = 0) {
  const res = await fetch(url + path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(timeoutMs + waitMs),
  });
  const text = await res.text();
  if (!res.ok) {
    throw new Error(`${path}: ${res.status} ${text}`);
  }
  return JSON.parse(text);
}

async function together(loops, count, publish) {
  const some = async () => {
    while (count > 0) {
      count--;
      await publish();
    }
  };
  await Promise.all(Array.from({ length: loops }, some));
}

const publish = {
  client: (topic) => client.publish(topic, data),
  bare: (topic) => post(`/v0/topics/${topic}`, { records: [{ data }], idempotency_key: randomBytes(16).toString("hex") }),
};

const work = {
  async client(topic, count) {
    const stop = new AbortController();
    let left = count;
    const handler = async () => {
      if (--left === 0) {
        stop.abort();
      }
    };
    const { done } = await client.work(topic, handler, { concurrency: atOnce, leaseMs, signal: stop.signal });
    if (done !== count) {
      throw new Error(`${done} of ${count} are done`);
    }
  },
  async bare(topic, count) {
    const path = `/v0/topics/${topic}`;
    let left = count;
    const handler = async () => {
      left--;
    };
    const node = "bare";
    const named = (jobs) => ({ node, seqs: jobs.map((j) => j.$seq), lease_ids: jobs.map((j) => j.lease_id) });
    while (left > 0) {
      const { claimed } = await post(path + "/claim", { node, max: atOnce, lease_ms: leaseMs, wait_ms: waitMs }, waitMs);
      const done = [];
      const failed = [];
      await Promise.all(
        claimed.map(async (job) => {
          try {
            await handler(job);
            done.push(job);
          } catch (e) {
            console.error(e);
            failed.push(job);
          }
        }),
      );
      if (done.length > 0) {
        const { skipped } = await post(path + "/ack", named(done));
        if (skipped.length > 0) {
          throw new Error(`the leases of ${skipped} have ended`);
        }
      }
      if (failed.length > 0) {
        await post(path + "/nack", { ...named(failed), delay_ms: 1000 });
      }
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, side, topic, number] = line.split(" ");
  const count = Number(number);
  if (name === "work-16") {
    await client.putTopic(topic, { type: "queue", leaseMs });
    for (let i = 0; i < count; i += 1000) {
      await client.publishBatch(topic, Array(Math.min(1000, count - i)).fill({ data }));
    }
  }
  const begin = performance.now();
  const cpu = process.cpuUsage();
  if (name === "work-16") {
    await work[side](topic, count);
  } else {
    await together(name === "publish-16" ? atOnce : 1, count, () => publish[side](topic));
  }
  const { user, system } = process.cpuUsage(cpu);
  console.log((performance.now() - begin) / 1000, (user + system) / 1e6);
}
