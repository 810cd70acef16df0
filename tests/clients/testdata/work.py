"""Works on the queue and notes each job in a file: work.py FILE CONCURRENCY LEASE_MS sync|async.

A note is the process, the job's number, when it was claimed and when it is handled (in
milliseconds since 1970), and the line.
"""

import asyncio
import os
import sys
import time

import weirmq

file, concurrency, lease_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
out = os.open(file, os.O_WRONLY | os.O_APPEND)


def handle(job: weirmq.Job) -> None:
    note = f"{os.getpid()} {job.seq} {job.deadline - lease_ms} {time.time_ns() // 1_000_000} {job.data}\n"
    os.write(out, note.encode())


async def ahandle(job: weirmq.Job) -> None:
    handle(job)
    await asyncio.sleep(0)


async def awork() -> weirmq.WorkSummary:
    async with weirmq.AsyncClient() as weir:
        return await weir.work("jobs", ahandle, concurrency=concurrency, lease_ms=lease_ms)


if sys.argv[4] == "async":
    print(asyncio.run(awork()))
else:
    print(weirmq.Client().work("jobs", handle, concurrency=concurrency, lease_ms=lease_ms))
