"""Prints the records of a topic, and what is written to it from now on: follow.py TOPIC [FROM_SEQ]."""

import asyncio
import json
import sys

import weirmq


async def main(topic: str, from_seq: int) -> None:
    async with weirmq.AsyncClient() as weir:
        async for event in weir.follow(topic, from_seq):
            if isinstance(event, weirmq.Record):
                print(event.seq, json.dumps(event.data), flush=True)
            elif isinstance(event, weirmq.Gap):
                print(f"lost: {event.first_seq} to {event.last_seq} ({event.reason})", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
