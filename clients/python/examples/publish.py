"""Publishes each line of standard input as one record: publish.py TOPIC < lines."""

import itertools
import sys

import weirmq

BATCH = 100


def main(topic: str) -> None:
    lines = (line.rstrip("\n") for line in sys.stdin)
    with weirmq.Client() as weir:
        weir.ensure_topic(topic, type="queue", max_deliveries=5, dead_letter=f"{topic}.dlq")
        while batch := list(itertools.islice(lines, BATCH)):
            done = weir.publish_batch(topic, batch)
            print(f"{done.first_seq}-{done.last_seq}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
