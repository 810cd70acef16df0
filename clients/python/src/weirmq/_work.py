"""The rules of a worker, and the asynchronous loop that follows them.

The worker of the synchronous client is :mod:`_threads`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from . import _calls
from ._errors import Unreachable, WeirError
from ._retry import Call, Untrusted, is_passing, pause_before
from ._types import Job, Settled

log = logging.getLogger("weirmq")
T = TypeVar("T")

LEAST_LEASE_MS, MOST_LEASE_MS = 100, 86_400_000
LONGEST_DELAY_MS = 86_400_000  # of a nack; the server makes it of more
CLAIM_WAIT_MS = 30_000
MOST_PER_CALL = 1000  # jobs in one claim, ack, nack or extend

RetryDelay = Callable[[Job, BaseException], int]


class Nack(Exception):
    """Raised by a handler: give the job back, to be tried again after ``delay_ms`` milliseconds.

    Other exceptions do the same with the worker's own delay, and are logged.
    """

    def __init__(self, delay_ms: int = 0) -> None:
        super().__init__(f"given back for {delay_ms} ms")
        self.delay_ms = delay_ms


def retry_delay(job: Job, error: BaseException) -> int:
    """The delay of a failed job if the worker has none of its own, in milliseconds.

    One second, doubled with every delivery up to a minute, less a random half.
    """
    longest = min(1000 * 2 ** min(job.deliveries - 1, 30), 60_000)
    return int(longest * (1 - random.random() / 2))


@dataclass
class WorkSummary:
    """What a worker did: jobs ``claimed``, and of those ``acked`` (done), ``nacked`` (given back)
    and ``lost`` (the lease was over, or it is not known if the answer to the ack was lost with a
    connection: somebody may do them again)."""

    claimed: int = 0
    acked: int = 0
    nacked: int = 0
    lost: int = 0


@dataclass(eq=False)
class Held:
    """A job that the worker has under a lease."""

    job: Job
    since: float  # when the lease was asked for last, by the worker's clock
    finished: bool = False
    over: bool = False  # the server says that the lease is over
    task: asyncio.Task[None] | None = None


@dataclass
class Shelf:
    """The jobs of one worker: which leases are due, what is free. Clocks are arguments."""

    concurrency: int
    lease: float  # seconds
    jobs: dict[str, Held] = field(default_factory=dict)  # by lease id
    most: int = MOST_PER_CALL  # jobs in one claim

    def free(self) -> int:
        """How many jobs to claim."""
        return min(self.concurrency - len(self.jobs), self.most)

    def lost(self, error: WeirError) -> None:
        """A claim failed. If only its answer was lost, perhaps because a slow link does not carry
        so many jobs in time, the next one is small: what was in it comes again when its leases end."""
        if isinstance(error, Unreachable) and error.sent:
            self.most = 1

    def answered(self, asked: int, got: int, took: float) -> None:
        """A claim was answered after so many seconds: the next may be larger if that was quick."""
        if got == asked and took <= min(self.lease, _calls.CALL_TIMEOUT) / 4:
            self.most = min(2 * self.most, MOST_PER_CALL)

    def put(self, job: Job, now: float) -> Held:
        """Takes a claimed job in."""
        held = self.jobs[job.lease_id] = Held(job, now)
        return held

    def again(self, jobs: Iterable[Job]) -> list[Held]:
        """What is held of jobs that were claimed: these older leases are over."""
        seqs = {j.seq for j in jobs}
        return [h for h in self.jobs.values() if h.job.seq in seqs]

    def take(self, held: Held) -> None:
        """A job that is settled, or lost and no longer worked on."""
        self.jobs.pop(held.job.lease_id, None)

    def due(self, now: float, all_of_them: bool) -> list[Held]:
        """The leases to extend: those of which a third is used up, and what is nearly due."""
        used = self.lease * (1 / 3 - 1 / 20)
        return [h for h in self.jobs.values() if not h.over and (all_of_them or now - h.since >= used)]

    def next_due(self, now: float) -> float:
        """Seconds until a lease is to be extended."""
        waits = [h.since + self.lease / 3 - now for h in self.jobs.values() if not h.over]
        return max(min(waits, default=self.lease / 3), 0.0)


class Caller(Protocol):
    """What the loop needs of a client."""

    async def _call(self, call: Call[T], retry_for: float | None = None, timeout: float | None = None) -> T: ...


class Loop:
    """Claims, extends and settles until :meth:`stop`; then it finishes what it holds."""

    def __init__(
        self,
        client: Caller,
        topic: str,
        node: str,
        handler: Callable[[Job], Awaitable[Any]],
        concurrency: int,
        lease_ms: int,
        delay: RetryDelay | None,
    ) -> None:
        self._client, self._topic, self._node = client, topic, node
        self._handler, self._lease_ms = handler, lease_ms
        self._delay: RetryDelay = delay or retry_delay
        self._shelf = Shelf(concurrency, lease_ms / 1000)
        self._summary = WorkSummary()
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # something was settled
        self._unsettled: list[tuple[Held, int | None]] = []  # None: done, else the delay in ms
        self._settle = asyncio.Event()
        self._keep = asyncio.Event()  # leases are due earlier, or in doubt
        self._doubted = False
        self._extends_at = 0.0
        self._failure: BaseException | None = None
        self._cancelled = False

    def stop(self) -> None:
        """Take nothing more; run ends when what is held is finished."""
        self._stopping.set()
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    async def run(self) -> WorkSummary:
        """Works until stopped. Raises what the server refuses for good, after finishing."""
        helpers = [asyncio.create_task(self._extends()), asyncio.create_task(self._settles())]
        for helper in helpers:
            helper.add_done_callback(self._broken)
        try:
            await self._claims()
            while self._shelf.jobs:
                await self._next_change()
        except asyncio.CancelledError:
            await self._give_back()
            raise
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        return self._summary

    def _broken(self, helper: asyncio.Task[None]) -> None:
        """A helper never ends by itself: without it nothing that is held can be finished."""
        error = None if helper.cancelled() else helper.exception()
        if error is not None:
            self._shelf.jobs.clear()
            self._fail(error)

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _claims(self) -> None:
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await self._claims_until(stop)
        finally:
            stop.cancel()

    async def _claims_until(self, stop: asyncio.Future[Any]) -> None:
        tries = 0
        while not self._stopping.is_set():
            if self._shelf.free() <= 0:
                await self._next_change()
                continue
            began, free = time.monotonic(), self._shelf.free()
            call = _calls.claim_waited(self._topic, self._node, free, self._lease_ms, CLAIM_WAIT_MS)
            try:
                got = await self._until_stop(self._client._call(call, retry_for=0), stop)
                tries = 0
            except WeirError as error:
                tries += 1
                self._shelf.lost(error)
                await self._after(error, "claim", tries)
                continue
            if got is None or not got.jobs:
                continue
            self._shelf.answered(free, len(got.jobs), time.monotonic() - began - got.waited)
            if self._stopping.is_set():
                await self._return(got.jobs)
            else:
                self._begin(got.jobs, began + got.waited)

    async def _return(self, jobs: list[Job]) -> None:
        """Gives jobs back that came when the worker was to stop."""
        self._summary.claimed += len(jobs)
        with contextlib.suppress(WeirError):
            done = await self._client._call(_calls.nack(jobs, 0, started=False), retry_for=self._shelf.lease)
            self._summary.nacked += done.count

    def _begin(self, jobs: list[Job], since: float) -> None:
        for old in self._shelf.again(jobs):
            self._lose(old)
        for job in jobs:
            held = self._shelf.put(job, since)
            self._summary.claimed += 1
            held.task = asyncio.create_task(self._handle(held))
        if since + self._shelf.lease / 3 < self._extends_at:
            self._keep.set()

    async def _until_stop(
        self, claiming: Awaitable[_calls.Claimed], stop: asyncio.Future[Any]
    ) -> _calls.Claimed | None:
        """The claim's jobs, or None if the worker was stopped meanwhile. The server gives what it
        had for a claim that was broken off to others."""
        claim = asyncio.ensure_future(claiming)
        try:
            await asyncio.wait({claim, stop}, return_when=asyncio.FIRST_COMPLETED)
            return claim.result() if claim.done() else None
        finally:
            if not claim.done():
                claim.cancel()
                with contextlib.suppress(asyncio.CancelledError, WeirError):
                    await claim

    async def _after(self, error: WeirError, verb: str, tries: int) -> None:
        """Waits before another try, or ends the worker."""
        if isinstance(error, Untrusted) or not is_passing(error):
            self._fail(error)
            return
        if isinstance(error, Unreachable):
            self._doubt()
        pause = pause_before(tries, error)
        log.warning("%s of %s: %s; again in %.2f s", verb, self._topic, error, pause)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _doubt(self) -> None:
        """The server may have been restarted, and leases be gone: ask for all of them."""
        self._doubted = True
        self._keep.set()

    async def _handle(self, held: Held) -> None:
        delay: int | None = None
        try:
            done = self._handler(held.job)
            if inspect.isawaitable(done):  # a plain function has done the job already
                await done
        except asyncio.CancelledError as error:
            delay = 0 if self._cancelled else delay_of(self._delay, held.job, error)
        except Exception as error:
            delay = outcome_of(self._delay, held.job, error)
        except BaseException as error:  # SystemExit and the like: the handler wants an end
            delay = 0
            self._fail(error)
        self._finish(held, delay)

    def _finish(self, held: Held, delay: int | None) -> None:
        held.finished = True
        if held.job.lost:
            self._drop(held)
            return
        self._unsettled.append((held, delay))
        self._settle.set()

    def _drop(self, held: Held) -> None:
        self._shelf.take(held)
        self._summary.lost += 1
        self._changed.set()

    async def _settles(self) -> None:
        """Acks and nacks; what is finished during one call goes into the next together."""
        while True:
            await self._settle.wait()
            await asyncio.sleep(0)  # what is finished in the same turn of the loop goes along
            self._settle.clear()
            batch, self._unsettled = self._unsettled, []
            for held, _ in batch:
                if held.over:
                    self._drop(held)
            for delay, some in batches((held, delay) for held, delay in batch if not held.over):
                await self._settle_some(delay, some)

    async def _settle_some(self, delay: int | None, some: Sequence[Held]) -> None:
        jobs = [h.job for h in some]
        call = _calls.settle("ack", jobs) if delay is None else _calls.nack(jobs, delay, started=True)
        tries = 0
        while True:
            try:
                done = await self._client._call(call, retry_for=0)
                break
            except WeirError as error:
                parts = halves(error, some)
                for part in parts:
                    await self._settle_some(delay, part)
                if parts:
                    return
                tries += 1
                pause = pause_before(tries, error)
                if isinstance(error, Untrusted) or not is_passing(error):
                    self._fail(error)
                    done = Settled(0, tuple(j.seq for j in jobs))
                    break
                # Meanwhile the leases are extended; once they are over nothing can be settled.
                if time.monotonic() + pause > max(h.since for h in some) + self._shelf.lease:
                    done = Settled(0, tuple(j.seq for j in jobs))
                    break
                if isinstance(error, Unreachable):
                    self._doubt()
                await asyncio.sleep(pause)
        self._settled(some, delay, set(done.skipped))

    def _settled(self, some: Sequence[Held], delay: int | None, skipped: set[int]) -> None:
        for held in some:
            self._shelf.take(held)
            if held.job.seq in skipped:
                self._summary.lost += 1
            elif delay is None:
                self._summary.acked += 1
            else:
                self._summary.nacked += 1
        self._changed.set()

    async def _extends(self) -> None:
        """Keeps the leases of what is held, finished jobs that are not settled yet included."""
        tries = 0
        while True:
            now = time.monotonic()
            wait = self._shelf.next_due(now)
            self._extends_at = now + wait
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._keep.wait(), wait)
            self._keep.clear()
            doubted, self._doubted = self._doubted, False
            due = self._shelf.due(time.monotonic(), doubted)
            try:
                for i in range(0, len(due), MOST_PER_CALL):
                    await self._extend_some(due[i : i + MOST_PER_CALL])
                tries = 0
            except WeirError as error:
                tries += 1
                if isinstance(error, Untrusted) or not is_passing(error):
                    self._fail(error)
                    for held in due:
                        self._lose(held)
                    continue
                self._doubted = True
                await asyncio.sleep(min(pause_before(tries, error), max(self._shelf.lease / 10, 0.05)))
                self._keep.set()

    async def _extend_some(self, some: Sequence[Held]) -> None:
        some = [h for h in some if h.job.lease_id in self._shelf.jobs and not h.over]
        if not some:
            return
        at = time.monotonic()
        call = _calls.settle("extend", [h.job for h in some], lease_ms=self._lease_ms)
        timeout = min(_calls.CALL_TIMEOUT, max(self._shelf.lease / 3, 1.0))
        try:
            answer = await self._client._call(call, retry_for=0, timeout=timeout)
        except WeirError as error:
            parts = halves(error, some)
            if not parts:
                raise
            for part in parts:
                await self._extend_some(part)
            return
        skipped = set(answer.skipped)
        for held in some:
            if held.job.seq not in skipped:
                held.since = at
            else:
                self._lose(held)

    def _lose(self, held: Held) -> None:
        if held.over or held.job.lease_id not in self._shelf.jobs:
            return
        held.over = True
        if held.finished:
            return  # its ack was quicker, or will tell
        held.job.lost = True
        log.warning("the lease of job %d of %s is over: it may be done twice", held.job.seq, self._topic)
        if held.task is not None:
            held.task.cancel()

    async def _give_back(self) -> None:
        """The worker itself was cancelled: end the handlers and return their jobs."""
        self._cancelled = True
        self.stop()
        tasks = [h.task for h in self._shelf.jobs.values() if h.task is not None and not h.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drained(), _calls.CONNECT_TIMEOUT)

    async def _drained(self) -> None:
        while self._shelf.jobs:
            await self._next_change()


def batches(batch: Iterable[tuple[Held, int | None]]) -> Iterator[tuple[int | None, list[Held]]]:
    """Jobs that one call can settle: those that are done, and for each delay those given back."""
    by_delay: dict[int | None, list[Held]] = {}
    for held, delay in batch:
        by_delay.setdefault(delay, []).append(held)
    for delay, some in by_delay.items():
        for i in range(0, len(some), MOST_PER_CALL):
            yield delay, some[i : i + MOST_PER_CALL]


def halves(error: WeirError, some: Sequence[T]) -> list[Sequence[T]]:
    """What to name in two calls, as the server is set to take fewer in one; else nothing."""
    middle = len(some) // 2
    return [some[:middle], some[middle:]] if error.code == "batch_too_large" and middle else []


def outcome_of(delay: RetryDelay, job: Job, error: Exception) -> int:
    """For how many milliseconds the job of a handler that raised is given back."""
    if isinstance(error, Nack):
        asked = error.delay_ms
        return delay_of(lambda *_: asked, job, error)
    log.error("job %d of %s failed", job.seq, job.topic, exc_info=error)
    return delay_of(delay, job, error)


def delay_of(delay: RetryDelay, job: Job, error: BaseException) -> int:
    """What a delay of the user's says, as a number that the server takes; 0 if it fails.

    A refused one would end the worker, and then the next one that gets the job.
    """
    try:
        return min(max(int(delay(job, error)), 0), LONGEST_DELAY_MS)
    except Exception:
        log.exception("the delay of job %d of %s", job.seq, job.topic)
        return 0


def check_options(handler: object, concurrency: int, lease_ms: int) -> None:
    """Raises TypeError or ValueError for what no worker can do."""
    if not callable(handler):
        raise TypeError(f"the handler is a function, not {handler!r}")
    if concurrency < 1:
        raise ValueError("concurrency is at least 1")
    if not LEAST_LEASE_MS <= lease_ms <= MOST_LEASE_MS:
        raise ValueError(f"lease_ms is {LEAST_LEASE_MS} to {MOST_LEASE_MS}, not {lease_ms}")
