"""Reads lines "WORK SIDE TOPIC COUNT" and does each once; answers with the seconds it took, and those of CPU."""

import asyncio
import concurrent.futures
import itertools
import json
import logging
import os
import sys
import time
import uuid

import httpx

import weirmq

URL = os.environ["WEIR_URL"]
AT_ONCE = 16
LEASE_MS = 30_000
WAIT_MS = 30_000  # of a claim
TIMEOUT = 30.0  # seconds of a request, besides what it waits by itself
WAITING = TIMEOUT + WAIT_MS / 1000
log = logging.getLogger("bare")
DATA = {"id": 7, "text": "x" * 200}
HEADERS = {"Content-Type": "application/json"}


def encode(body):
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def record():
    return encode({"records": [{"data": DATA}], "idempotency_key": uuid.uuid4().hex})


def claim():
    return encode({"node": "bare", "max": AT_ONCE, "lease_ms": LEASE_MS, "wait_ms": WAIT_MS})


def settle(jobs, **fields):
    return encode({"node": "bare", "seqs": [j["$seq"] for j in jobs], "lease_ids": [j["lease_id"] for j in jobs], **fields})


def parted(jobs, good):
    return [j for j, ok in zip(jobs, good) if ok], [j for j, ok in zip(jobs, good) if not ok]


def read(answer):
    answer.raise_for_status()
    return json.loads(answer.content)


def none_skipped(answer):
    if answer["skipped"]:
        raise RuntimeError(f"the leases of {answer['skipped']} have ended")


class Sync:
    def __init__(self):
        self.client, self.bare = weirmq.Client(URL), httpx.Client(base_url=URL, headers=HEADERS, timeout=TIMEOUT)

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
        path, done, left = f"/v0/topics/{topic}", itertools.count(1), True

        def handle(job):
            nonlocal left
            if next(done) == count:
                left = False

        def tried(job):
            try:
                handle(job)
            except Exception:
                log.exception("job %d", job["$seq"])
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            while left:
                jobs = read(self.bare.post(path + "/claim", content=claim(), timeout=WAITING))["claimed"]
                good, bad = parted(jobs, pool.map(tried, jobs))
                if good:
                    none_skipped(read(self.bare.post(path + "/ack", content=settle(good))))
                if bad:
                    read(self.bare.post(path + "/nack", content=settle(bad, delay_ms=1000)))


class Async:
    def __init__(self):
        self.client, self.bare = weirmq.AsyncClient(URL), httpx.AsyncClient(base_url=URL, headers=HEADERS, timeout=TIMEOUT)

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
        path, left = f"/v0/topics/{topic}", count

        async def handle(job):
            nonlocal left
            left -= 1

        async def tried(job):
            try:
                await handle(job)
            except Exception:
                log.exception("job %d", job["$seq"])
                return False
            return True

        while left > 0:
            jobs = read(await self.bare.post(path + "/claim", content=claim(), timeout=WAITING))["claimed"]
            good, bad = parted(jobs, await asyncio.gather(*(tried(job) for job in jobs)))
            if good:
                none_skipped(read(await self.bare.post(path + "/ack", content=settle(good))))
            if bad:
                read(await self.bare.post(path + "/nack", content=settle(bad, delay_ms=1000)))


def main():
    sync, together, loop = Sync(), Async(), asyncio.new_event_loop()
    for line in sys.stdin:
        work, side, topic, count = line.split()
        count = int(count)
        if work.startswith("work"):
            sync.prepare(topic, count)
        begin, cpu = time.perf_counter(), time.process_time()
        if work.endswith("-16"):
            loop.run_until_complete(getattr(together, f"{work[:-3]}_{side}")(topic, count))
        else:
            getattr(sync, f"{work.split('-')[0]}_{side}")(topic, count)
        print(time.perf_counter() - begin, time.process_time() - cpu, flush=True)


main()
