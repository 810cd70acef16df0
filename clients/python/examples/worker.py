"""Works on a queue until SIGTERM, then finishes what it holds: worker.py QUEUE."""

import json
import logging
import sys

import weirmq


def handle(job: weirmq.Job) -> None:
    print(job.seq, json.dumps(job.data), flush=True)  # the work; an exception gives the job back


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with weirmq.Client() as weir:
        summary = weir.work(sys.argv[1], handle, concurrency=4)
    print(f"done: {summary.acked}", flush=True)
