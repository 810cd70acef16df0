// Works on a queue until SIGINT or SIGTERM: node worker.js URL TOPIC [JOBS AT A TIME]
// It prints each job. What it holds at the signal it finishes.
import process from "node:process";
import { Client } from "@weirmq/client";

const [url, topic, concurrency = "4"] = process.argv.slice(2);
if (!url || !topic) {
  console.error("usage: node worker.js URL TOPIC [JOBS AT A TIME]");
  process.exit(2);
}
const drain = new AbortController();
process.once("SIGINT", () => drain.abort());
process.once("SIGTERM", () => drain.abort());

const summary = await new Client(url).work(
  topic,
  async (job) => {
    console.log(`${job.seq} ${job.data}`); // the work; throwing gives the job back
  },
  {
    concurrency: Number(concurrency),
    leaseMs: 10_000,
    signal: drain.signal,
    onError: (error, job) => console.error(job ? `job ${job.seq}:` : "server:", error instanceof Error ? error.message : error),
  },
);
console.error(`done ${summary.done}, failed ${summary.failed}, lost ${summary.lost}`);
