"""Reads lines "WORK SIDE TOPIC COUNT" and does each once; answers with the seconds it took."""

import asyncio
import itertools
import json
import os
import sys
import time
import uuid

import httpx

import weirmq

URL = os.environ["WEIR_URL"]
AT_ONCE = 16
LEASE_MS = 30_000
DATA = {"id": 7, "text": "x" * 200}
HEADERS = {"Content-Type": "application/json"}


def encode(body):
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def record():
    return encode({"records": [{"data": DATA}], "idempotency_key": uuid.uuid4().hex})


def claim():
    return encode({"node": "bare", "max": AT_ONCE, "lease_ms": LEASE_MS})


def ack(jobs):
    return encode({"node": "bare", "seqs": [j["$seq"] for j in jobs], "lease_ids": [j["lease_id"] for j in jobs]})


def read(answer):
    answer.raise_for_status()
    return json.loads(answer.content)


class Sync:
    def __init__(self):
        self.client, self.bare = weirmq.Client(URL), httpx.Client(base_url=URL, headers=HEADERS)

    def publish_client(self, topic, count):
        for _ in range(count):
            self.client.publish(topic, DATA)

    def publish_bare(self, topic, count):
        path = f"/v0/topics/{topic}"
        for _ in range(count):
            read(self.bare.post(path, content=record()))

    def prepare(self, topic, count):
        self.client.put_topic(topic, type="queue", lease_ms=LEASE_MS)
        for i in range(0, count, 1000):
            self.client.publish_batch(topic, [DATA] * min(1000, count - i))

    def work_client(self, topic, count):
        done = itertools.count(1)  # next of it is one step for threads

        def handle(job):
            if next(done) == count:
                worker.stop()

        worker = self.client.worker(topic, handle, concurrency=AT_ONCE, lease_ms=LEASE_MS, signals=False)
        summary = worker.run()
        assert summary.acked == count, summary

    def work_bare(self, topic, count):
        path = f"/v0/topics/{topic}"
        while count > 0:
            jobs = read(self.bare.post(path + "/claim", content=claim()))["claimed"]
            count -= read(self.bare.post(path + "/ack", content=ack(jobs)))["acked"]


class Async:
    def __init__(self):
        self.client, self.bare = weirmq.AsyncClient(URL), httpx.AsyncClient(base_url=URL, headers=HEADERS)

    async def together(self, count, publish):
        async def some():
            nonlocal count
            while count > 0:
                count -= 1
                await publish()

        await asyncio.gather(*[some() for _ in range(AT_ONCE)])

    async def publish_client(self, topic, count):
        await self.together(count, lambda: self.client.publish(topic, DATA))

    async def publish_bare(self, topic, count):
        path = f"/v0/topics/{topic}"

        async def publish():
            read(await self.bare.post(path, content=record()))

        await self.together(count, publish)

    async def work_client(self, topic, count):
        left = count

        async def handle(job):
            nonlocal left
            left -= 1
            if left == 0:
                worker.stop()

        worker = self.client.worker(topic, handle, concurrency=AT_ONCE, lease_ms=LEASE_MS, signals=False)
        done = await worker.run()
        assert done.acked == count, done

    async def work_bare(self, topic, count):
        path = f"/v0/topics/{topic}"
        while count > 0:
            jobs = read(await self.bare.post(path + "/claim", content=claim()))["claimed"]
            count -= read(await self.bare.post(path + "/ack", content=ack(jobs)))["acked"]


def main():
    sync, together, loop = Sync(), Async(), asyncio.new_event_loop()
    for line in sys.stdin:
        work, side, topic, count = line.split()
        count = int(count)
        if work.startswith("work"):
            sync.prepare(topic, count)
        begin = time.perf_counter()
        if work.endswith("-16"):
            loop.run_until_complete(getattr(together, f"{work[:-3]}_{side}")(topic, count))
        else:
            getattr(sync, f"{work.split('-')[0]}_{side}")(topic, count)
        print(time.perf_counter() - begin, flush=True)


main()
