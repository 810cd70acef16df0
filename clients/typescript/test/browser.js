// What a page does with the package; the page tells its own server what came of it.
import { Client, WeirError } from "@weirmq/client";

async function use() {
  const client = new Client(location.origin);
  await client.putTopic("page", { type: "queue" });
  await client.publishBatch("page", [{ data: 2n ** 64n - 1n }, { data: "é😀" }]);
  const followed = [];
  for await (const event of client.follow("page")) {
    if (event.type === "record" && followed.push(String(event.data)) === 2) {
      break;
    }
  }
  const [job] = await client.claim("page", { waitMs: 1000 });
  const { skipped } = await client.ack("page", job);
  const stop = new AbortController();
  const done = await client.work("page", () => stop.abort(), { signal: stop.signal });
  const refused = await client.diff("nowhere").catch((e) => e instanceof WeirError && e.code);
  const aborted = await client.claim("page", { waitMs: 30_000, signal: AbortSignal.timeout(50) }).catch((e) => e.name);
  return { followed, skipped, done, refused, aborted };
}

const result = await use().catch((e) => ({ failed: String(e.stack) }));
await fetch("/done", { method: "POST", body: JSON.stringify(result) });
