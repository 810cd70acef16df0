// Publishes the lines of its standard input: node publish.js URL TOPIC [LINES PER WRITE] < lines
import process from "node:process";
import { createInterface } from "node:readline";
import { Client } from "@weirmq/client";

const [url, topic, most = "100"] = process.argv.slice(2);
if (!url || !topic) {
  console.error("usage: node publish.js URL TOPIC [LINES PER WRITE] < lines");
  process.exit(2);
}
const client = new Client(url);
let published = 0;

/** One write: all of the lines or none, and once, however often it has to be sent. */
async function write(lines) {
  await client.publishBatch(topic, lines.map((line) => ({ data: line })), { config: { type: "queue" } });
  published += lines.length;
}

let lines = [];
for await (const line of createInterface({ input: process.stdin })) {
  lines.push(line);
  if (lines.length >= Number(most)) {
    await write(lines);
    lines = [];
  }
}
if (lines.length > 0) {
  await write(lines);
}
console.log(`published ${published}`);
