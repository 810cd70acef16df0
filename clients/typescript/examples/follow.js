// Prints the records of a topic as they are written: node follow.js URL TOPIC [LAST NUMBER SEEN]
import process from "node:process";
import { Client } from "@weirmq/client";

const [url, topic, from = "0"] = process.argv.slice(2);
if (!url || !topic) {
  console.error("usage: node follow.js URL TOPIC [LAST NUMBER SEEN]");
  process.exit(2);
}
const stop = new AbortController();
process.once("SIGINT", () => stop.abort());
process.once("SIGTERM", () => stop.abort());

try {
  const events = new Client(url).follow(topic, {
    from: BigInt(from),
    signal: stop.signal,
    onLost: (error) => console.error("lost:", error.message),
  });
  for await (const event of events) {
    if (event.type === "record") {
      console.log(`${event.seq} ${event.data}`);
    } else if (event.type === "tombstone") {
      console.error(`${event.gapFrom} to ${event.gapTo} are lost: ${event.reason}`);
    }
  }
} catch (error) {
  if (!stop.signal.aborted) {
    throw error;
  }
}
