"""The worker of the synchronous client: handlers in threads, on blocking connections.

The rules are those of :mod:`_work`. One thread claims and one extends leases. The others run
handlers, and whichever of them is done when nobody settles acks what is done by then, its own
job and others'. At most one thread at a time is on its way from sleep: it wakes the next one if
there is more to do, so handlers that wait all begin at once, and those that do not cost no switch
of threads each.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import inspect
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from . import _calls
from ._errors import Unreachable, WeirError
from ._http import Settings, send
from ._retry import Call, Tries, Untrusted, is_passing, lost_connection, pause_before
from ._types import Job, Settled
from ._work import (
    CLAIM_WAIT_MS,
    MOST_PER_CALL,
    Held,
    RetryDelay,
    Shelf,
    WorkSummary,
    batches,
    check_options,
    delay_of,
    halves,
    log,
    outcome_of,
    retry_delay,
)

T = TypeVar("T")

# Where a signal does not end the wait for a lock, its handler runs after so many seconds.
TICK = 1.0 if os.name == "nt" else None


def call_blocking(
    http: httpx.Client,
    settings: Settings,
    call: Call[T],
    retry_for: float | None = None,
    timeout: float | None = None,
    **extensions: Any,
) -> T:
    """Makes a call, again where that is safe."""
    tries = Tries(call, settings.retry_for if retry_for is None else retry_for, time.monotonic())
    request = settings.request(call, http.cookies, timeout, **extensions)
    while True:
        try:
            try:
                return tries.answered(send(http, request))
            except httpx.RequestError as error:
                raise lost_connection(error) from error
        except WeirError as error:
            time.sleep(tries.failed(error, time.monotonic()))


class Line:
    """A connection whose request another thread can break off, for good."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = httpx.Client(**settings.options())
        self._stream: Any = None
        self._cut = False

    def call(self, call: Call[T]) -> T:
        """Makes a call once."""
        return call_blocking(self._http, self._settings, call, 0, trace=self._trace)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
        if self._cut:
            raise httpx.ReadError("the worker was stopped")

    def cut(self) -> None:
        """Ends the request that waits, and all that follow. Any thread may call it."""
        self._cut = True
        if self._stream is not None:
            with contextlib.suppress(OSError, AttributeError):
                # Of the plain socket: a TLS one would be changed under the thread that reads it.
                socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)

    def close(self) -> None:
        self._http.close()


class Worker:
    """A worker on a queue; made by :meth:`Client.worker`. It runs once."""

    def __init__(
        self,
        settings: Settings,
        topic: str,
        handler: Callable[[Job], Any],
        concurrency: int,
        lease_ms: int,
        delay: RetryDelay | None,
        signals: bool,
    ) -> None:
        check_options(handler, concurrency, lease_ms)
        self._settings, self._topic, self._handler = settings, topic, handler
        self._concurrency, self._lease_ms = concurrency, lease_ms
        self._delay, self._signals = delay or retry_delay, signals
        self._stopping = False
        self._control: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: all is finished
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()  # for threads; False: end
        self._keep = threading.Event()  # leases are in doubt, or the end
        self._lock = threading.Lock()  # of what follows
        self._changed = threading.Condition(self._lock)  # something was settled, or the stop
        self._shelf = Shelf(concurrency, lease_ms / 1000)
        self._summary = WorkSummary()
        self._ready: collections.deque[Held] = collections.deque()
        self._unsettled: list[tuple[Held, int | None]] = []  # None: done, else the delay in ms
        self._settling = False
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._waking = False
        self._doubted = False
        self._extends_at = 0.0
        self._ended = False
        self._cancelled = False
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Take nothing more; :meth:`run` returns when what is held is finished. Any thread may
        call it, and handlers of signals."""
        self._stopping = True
        self._control.put(False)

    def run(self) -> WorkSummary:
        """Works until it is stopped; see :meth:`Client.work`."""
        self._context = contextvars.copy_context()
        self._http, self._line = httpx.Client(**self._settings.options()), Line(self._settings)
        helpers = [
            threading.Thread(target=self._guarded, args=(task,), name="weirmq", daemon=True)
            for task in (self._claims, self._extends)
        ]
        try:
            with on_signals(self.stop, self._signals):
                for helper in helpers:
                    helper.start()
                while not self._next_control():
                    self._halt()
        except BaseException:
            self._give_back()
            raise
        finally:
            with self._lock:
                self._ended = True
                threads = [] if self._cancelled else list(self._threads)
            self._keep.set()
            for _ in self._threads:
                self._wakes.put(False)
            self._halt()
            for thread in [*helpers, *threads]:
                thread.join()
            self._line.close()
            self._http.close()
        if self._failure is not None:
            raise self._failure
        return self._summary

    def _next_control(self) -> bool:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._control.get(timeout=TICK)

    def _halt(self) -> None:
        self._stopping = True
        self._line.cut()
        with self._lock:
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    def _guarded(self, task: Callable[[], None]) -> None:
        """Runs what nothing that is held can be finished without."""
        try:
            task()
        except BaseException as error:
            with self._lock:
                self._shelf.jobs.clear()
                self._changed.notify_all()
            self._fail(error)
            self._control.put(True)

    def _call(self, call: Call[T], timeout: float | None = None) -> T:
        return call_blocking(self._http, self._settings, call, 0, timeout)

    def _claims(self) -> None:
        tries = 0
        while True:
            with self._lock:
                while not self._stopping and self._shelf.free() <= 0:
                    self._changed.wait()
                free = self._shelf.free()
            if self._stopping:
                break
            began = time.monotonic()
            try:
                got = self._line.call(
                    _calls.claim_waited(self._topic, self._settings.node, free, self._lease_ms, CLAIM_WAIT_MS)
                )
                tries = 0
            except WeirError as error:
                with self._lock:
                    self._shelf.lost(error)
                if not self._stopping:
                    tries += 1
                    self._after(error, tries)
                continue
            with self._lock:
                self._shelf.answered(free, len(got.jobs), time.monotonic() - began - got.waited)
            if got.jobs and self._stopping:
                self._return(got.jobs)
            elif got.jobs:
                self._begin(got.jobs, began + got.waited)
        with self._lock:
            while self._shelf.jobs and not self._cancelled:
                self._changed.wait()
        self._control.put(True)

    def _after(self, error: WeirError, tries: int) -> None:
        """Waits before another claim, or ends the worker."""
        if isinstance(error, Untrusted) or not is_passing(error):
            self._fail(error)
            return
        if isinstance(error, Unreachable):
            self._doubt()
        pause = pause_before(tries, error)
        log.warning("claim of %s: %s; again in %.2f s", self._topic, error, pause)
        with self._lock:
            self._changed.wait_for(lambda: self._stopping, pause)

    def _return(self, jobs: list[Job]) -> None:
        """Gives jobs back that came when the worker was to stop."""
        self._summary.claimed += len(jobs)
        call = _calls.nack(jobs, 0, started=False)
        with contextlib.suppress(WeirError):
            done = call_blocking(self._http, self._settings, call, self._shelf.lease)
            self._summary.nacked += done.count

    def _begin(self, jobs: list[Job], since: float) -> None:
        with self._lock:
            for old in self._shelf.again(jobs):
                self._lose(old)
            for job in jobs:
                self._ready.append(self._shelf.put(job, since))
            self._summary.claimed += len(jobs)
            early = since + self._shelf.lease / 3 < self._extends_at
            wake = self._wake()
        if wake:
            self._wakes.put(True)
        if early:
            self._keep.set()

    def _wake(self) -> bool:
        """Whether to wake a thread for what is ready or to be settled; under the lock. With none
        asleep it starts one."""
        if self._waking or not (self._ready or self._to_settle()):
            return False
        # One more than handlers, for one that settles.
        if self._idle == 0:
            if len(self._threads) > self._concurrency:
                return False
            thread = threading.Thread(target=self._handles, name=f"weirmq-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        else:
            self._idle -= 1
        self._waking = True
        return True

    def _to_settle(self) -> bool:
        return bool(self._unsettled) and not self._settling

    def _handles(self) -> None:
        while self._wakes.get():
            with self._lock:
                self._waking = False
            while self._next():
                pass

    def _next(self) -> bool:
        """Does a job, or settles; if there is neither, the thread sleeps."""
        with self._lock:
            # What is ready comes first: it may be done in time for the same call.
            held = self._ready.popleft() if self._ready else None
            if held is None and not self._to_settle():
                self._idle += 1
                return False
            if held is None:
                self._settling = True
            wake = self._wake()
        if wake:
            self._wakes.put(True)
        if held is None:
            self._guarded(self._settles)
            return True
        delay = self._handle(held)
        with self._lock:
            held.finished = True
            if held.job.lost:
                self._drop(held)
            elif not self._cancelled:
                self._unsettled.append((held, delay))
        return True

    def _handle(self, held: Held) -> int | None:
        try:
            returned = self._context.copy().run(self._handler, held.job)
        except Exception as error:
            return outcome_of(self._delay, held.job, error)
        except BaseException as error:  # SystemExit and the like: the handler wants an end
            self._fail(error)
            return 0
        if inspect.isawaitable(returned):  # nothing of it has run
            if inspect.iscoroutine(returned):
                returned.close()
            self._fail(TypeError("the handler is asynchronous; AsyncClient awaits those"))
            return 0
        return None

    def _drop(self, held: Held) -> None:
        self._shelf.take(held)
        self._summary.lost += 1
        self._changed.notify_all()

    def _settles(self) -> None:
        """Acks and nacks until all that is finished is settled."""
        while True:
            with self._lock:
                batch, self._unsettled = self._unsettled, []
                self._settling = bool(batch)
                for held, _ in batch:
                    if held.over:
                        self._drop(held)
                some = [(held, delay) for held, delay in batch if not held.over]
            if not batch:
                return
            for delay, part in batches(some):
                self._settle_some(delay, part)

    def _settle_some(self, delay: int | None, some: Sequence[Held]) -> None:
        jobs = [h.job for h in some]
        call = _calls.settle("ack", jobs) if delay is None else _calls.nack(jobs, delay, started=True)
        tries = 0
        while True:
            try:
                done = self._call(call)
                break
            except WeirError as error:
                parts = halves(error, some)
                for part in parts:
                    self._settle_some(delay, part)
                if parts:
                    return
                tries += 1
                pause = pause_before(tries, error)
                refused = isinstance(error, Untrusted) or not is_passing(error)
                if refused:
                    self._fail(error)
                # Meanwhile the leases are extended; once they are over nothing can be settled.
                if refused or self._cancelled or time.monotonic() + pause > max(h.since for h in some) + self._shelf.lease:
                    done = Settled(0, tuple(j.seq for j in jobs))
                    break
                if isinstance(error, Unreachable):
                    self._doubt()
                time.sleep(pause)
        skipped = set(done.skipped)
        with self._lock:
            for held in some:
                self._shelf.take(held)
            lost = sum(h.job.seq in skipped for h in some)
            self._summary.lost += lost
            if delay is None:
                self._summary.acked += len(some) - lost
            else:
                self._summary.nacked += len(some) - lost
            self._changed.notify_all()

    def _doubt(self) -> None:
        """The server may have been restarted, and leases be gone: ask for all of them."""
        self._doubted = True
        self._keep.set()

    def _extends(self) -> None:
        """Keeps the leases of what is held, finished jobs that are not settled yet included."""
        tries = 0
        while True:
            with self._lock:
                now = time.monotonic()
                wait = self._shelf.next_due(now)
                self._extends_at = now + wait
            self._keep.wait(wait)
            if self._ended:
                return
            self._keep.clear()
            with self._lock:
                doubted, self._doubted = self._doubted, False
                due = self._shelf.due(time.monotonic(), doubted)
            try:
                for i in range(0, len(due), MOST_PER_CALL):
                    self._extend_some(due[i : i + MOST_PER_CALL])
                tries = 0
            except WeirError as error:
                tries += 1
                if isinstance(error, Untrusted) or not is_passing(error):
                    self._fail(error)
                    with self._lock:
                        for held in due:
                            self._lose(held)
                    continue
                self._doubted = True
                time.sleep(min(pause_before(tries, error), max(self._shelf.lease / 10, 0.05)))
                self._keep.set()

    def _extend_some(self, some: Sequence[Held]) -> None:
        with self._lock:
            some = [h for h in some if h.job.lease_id in self._shelf.jobs and not h.over]
        if not some:
            return
        at = time.monotonic()
        call = _calls.settle("extend", [h.job for h in some], lease_ms=self._lease_ms)
        try:
            answer = self._call(call, min(_calls.CALL_TIMEOUT, max(self._shelf.lease / 3, 1.0)))
        except WeirError as error:
            parts = halves(error, some)
            if not parts:
                raise
            for part in parts:
                self._extend_some(part)
            return
        skipped = set(answer.skipped)
        with self._lock:
            for held in some:
                if held.job.seq in skipped:
                    self._lose(held)
                else:
                    held.since = at

    def _lose(self, held: Held) -> None:
        if held.over or held.job.lease_id not in self._shelf.jobs:
            return
        held.over = True
        if not held.finished:  # else its ack was quicker, or will tell
            held.job.lost = True
            log.warning("the lease of job %d of %s is over: it may be done twice", held.job.seq, self._topic)

    def _give_back(self) -> None:
        """The thread of run is to end: return the jobs. Handlers cannot be ended."""
        with self._lock:
            self._cancelled = self._ended = True
            self._ready.clear()
            jobs = [h.job for h in self._shelf.jobs.values() if not h.over]
            self._changed.notify_all()
        parts: list[Sequence[Job]] = [jobs[i : i + MOST_PER_CALL] for i in range(0, len(jobs), MOST_PER_CALL)]
        while parts:
            some = parts.pop()
            try:
                self._call(_calls.nack(some, 0, started=True), _calls.CONNECT_TIMEOUT)
            except WeirError as error:
                parts += halves(error, some)


@contextlib.contextmanager
def on_signals(stop: Callable[[], None], enabled: bool) -> Iterator[None]:
    """Calls ``stop`` at the first SIGTERM or SIGINT; the next one has its usual effect.

    Does nothing outside the main thread, where signals do not arrive.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def stopped(*_: Any) -> None:
        restore()
        stop()

    for number in before:
        signal.signal(number, stopped)
    try:
        yield
    finally:
        restore()
