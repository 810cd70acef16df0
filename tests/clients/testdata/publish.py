"""Publishes numbered lines to a log and to a queue: publish.py LINES BATCH."""

import sys

import weirmq

lines, batch = int(sys.argv[1]), int(sys.argv[2])
deduped = 0
with weirmq.Client() as weir:
    for first in range(0, lines, batch):
        part = [f"line {n}" for n in range(first, first + batch)]
        for topic in ("lines", "jobs"):
            deduped += weir.publish_batch(topic, part).deduped
print(deduped)
