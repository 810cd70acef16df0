// How the package looks to a program in TypeScript; it is compiled, not run.
import { Client, WeirError, type FollowEvent, type Job, type Seq, type WorkSummary } from "@weirmq/client";

interface Mail {
  to: string;
}

export async function program(signal: AbortSignal): Promise<void> {
  const client = new Client("http://127.0.0.1:4000", { key: "secret", node: "here" });
  const { firstSeq } = await client.publish("mails", { to: "a" } satisfies Mail, { priority: "high", config: { type: "queue", maxDeliveries: 5 } });
  const read = await client.diff<Mail>("mails", { fromSeq: firstSeq, waitMs: 1000, signal });
  const next: Seq = read.nextFromSeq;
  for await (const event of client.follow<Mail>({ mails: next, news: "tail" })) {
    const e: FollowEvent<Mail> = event;
    if (e.type === "record") {
      e.data.to.toUpperCase();
    }
    // @ts-expect-error only records have data
    e.data;
  }
  const jobs: Job<Mail>[] = await client.claim<Mail>("mails", { max: 3 });
  await client.ack("mails", jobs);
  const state = await client.topic("mails");
  const head: number | bigint = state.headSeq;
  // @ts-expect-error it may be a bigint
  const rounded: number = state.headSeq;
  state.queue?.overload?.toString();
  // @ts-expect-error the server has no such counter
  state.queue?.sleeping;
  // @ts-expect-error there is no such tier
  await client.publish("mails", 1, { priority: "urgent" });
  try {
    const summary: WorkSummary = await client.work<Mail>("mails", async (job, { signal: lost }) => fetch(job.data.to, { signal: lost }), { signal });
    summary.done.toFixed();
  } catch (e) {
    if (e instanceof WeirError && e.status === 404) {
      e.code.toUpperCase();
    }
  }
}
