"""Works on the queue "jobs", whose N jobs it has all at once, for longer than a lease; then it
stops and prints what it did: hold.py N LEASE_MS sync|async.
"""

import asyncio
import sys
import threading
import time

import weirmq

n, lease_ms = int(sys.argv[1]), int(sys.argv[2])
came: list[int] = []
longer = 1.5 * lease_ms / 1000  # in which nothing but the worker keeps the leases


def work() -> weirmq.WorkSummary:
    end = threading.Event()

    def handle(job: weirmq.Job) -> None:
        came.append(job.seq)
        if len(came) == n:
            time.sleep(longer)
            end.set()
            worker.stop()
        end.wait(30)

    worker = weirmq.Client().worker("jobs", handle, concurrency=n, lease_ms=lease_ms)
    return worker.run()


async def awork() -> weirmq.WorkSummary:
    end = asyncio.Event()

    async def handle(job: weirmq.Job) -> None:
        came.append(job.seq)
        if len(came) == n:
            await asyncio.sleep(longer)
            end.set()
            worker.stop()
        await asyncio.wait_for(end.wait(), 30)

    async with weirmq.AsyncClient() as weir:
        worker = weir.worker("jobs", handle, concurrency=n, lease_ms=lease_ms)
        return await worker.run()


print(asyncio.run(awork()) if sys.argv[3] == "async" else work())
