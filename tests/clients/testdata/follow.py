"""Prints the lines of the log until there are so many: follow.py LINES sync|async."""

import asyncio
import sys

import weirmq

lines = int(sys.argv[1])


def took(event: weirmq.Event, seen: int) -> int:
    if isinstance(event, weirmq.Gap):
        sys.exit(f"lost: {event}")
    if not isinstance(event, weirmq.Record):
        return seen
    print(event.data)
    return seen + 1


def follow() -> None:
    seen = 0
    with weirmq.Client() as weir:
        for event in weir.follow("lines"):
            seen = took(event, seen)
            if seen == lines:
                return


async def afollow() -> None:
    seen = 0
    async with weirmq.AsyncClient() as weir:
        async for event in weir.follow("lines"):
            seen = took(event, seen)
            if seen == lines:
                return


asyncio.run(afollow()) if sys.argv[2] == "async" else follow()
