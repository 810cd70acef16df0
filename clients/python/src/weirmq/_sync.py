"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _calls, _work
from ._errors import WeirError
from ._follow import Event, Follower
from ._http import STREAM_TIMEOUT, Settings, Verify
from ._retry import Call, lost_connection
from ._threads import Worker, call_blocking
from ._types import Job, Message, Page, Published, Settled, Tier, _NoKey

T = TypeVar("T")


class Client:
    """A connection to one weir server. It may be used by many threads at once.

    Every call raises :class:`WeirError`: :class:`Unreachable` if there was no answer. Before that,
    an answer with ``Retry-After`` and a connection that did not come about are retried with
    growing, scattered pauses; a connection that broke later only where repeating does no harm.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        verify: Verify = True,
        node: str | None = None,
        timeout: float = _calls.CALL_TIMEOUT,
        retry_for: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connects at the first call.

        ``url`` is ``http://host:port``; by default WEIR_URL, or http://127.0.0.1:4000. ``key`` is
        the API key; by default WEIR_API_KEY. ``verify`` is an SSL context, the path of a file of
        authorities, or False to trust everybody. ``node`` is whom leases belong to; by default a
        name of this client alone. ``timeout`` is for how many seconds a try may take, besides
        what it asks the server to wait; ``retry_for`` for how many seconds after the first one
        another may begin (keep it below the topic's ``idempotency_window_ms``, 2 minutes by
        default). ``transport`` carries everything but :meth:`work`, which has connections of its
        own. Raises ValueError for a ``url`` or ``key`` that cannot be one.
        """
        self._settings = Settings.of(url, key, node, verify, timeout, retry_for)
        self._http = httpx.Client(transport=transport, **self._settings.options())

    @property
    def url(self) -> str:
        """The server's address."""
        return self._settings.url

    @property
    def node(self) -> str:
        """Whom leases belong to."""
        return self._settings.node

    def close(self) -> None:
        """Drops the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        data: Any,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: Tier | None = None,
        fair_key: str | None = None,
        delay_ms: int = 0,
        idempotency_key: str | _NoKey | None = None,
        create: bool | None = None,
        config: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Published:
        """Appends one record; ``data`` is any JSON value. See :class:`Message` for its options.

        The idempotency key makes it safe to repeat: of all publishes with one key only the first
        is stored. Without one the client makes one for this call, so that its own retries store
        nothing twice; give one to be safe over a crash of your program, too, or ``NO_KEY`` for
        none. A topic that is absent is created, with ``config``, unless ``create`` is False.
        Raises TypeError or ValueError if ``data`` or ``meta`` is no JSON.
        """
        item = Message(data, tag, node, meta, priority, fair_key, delay_ms)
        return self.publish_batch(
            topic,
            [item],
            idempotency_key=idempotency_key,
            create=create,
            config=config,
            disable_backpressure=disable_backpressure,
        )

    def publish_batch(
        self,
        topic: str,
        items: Iterable[Message | Any],
        *,
        idempotency_key: str | _NoKey | None = None,
        create: bool | None = None,
        config: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Published:
        """Appends 1 to 10,000 records, all or none: messages, or their data alone.

        The key is that of the whole batch; otherwise as :meth:`publish`. Raises TypeError for a
        single string or mapping, whose characters or keys would become the records.
        """
        return self._call(_calls.publish(topic, items, idempotency_key, create, config, disable_backpressure))

    def diff(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int | None = None,
        wait_ms: int = 0,
        max_batch_bytes: int | None = None,
        node: str | Sequence[str] | None = None,
    ) -> Page:
        """Reads the records after ``from_seq``; go on with the page's ``next_from_seq``.

        At most ``limit`` (256; up to 1000) of at most ``max_batch_bytes``. If there is nothing
        yet, the server waits up to ``wait_ms`` (30,000). Records written by ``node`` are left out.
        """
        return self._call(_calls.diff(topic, from_seq, limit, wait_ms, max_batch_bytes, node))

    def follow(
        self,
        topics: str | Mapping[str, int],
        from_seq: int = 0,
        *,
        tail: bool = False,
        limit: int | None = None,
        node: str | Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yields what is in the topics after ``from_seq``, then what is written, as it is written.

        ``topics`` is a name, or cursors by name; ``tail`` begins at the end instead. Yields
        :class:`Record` in the order of their numbers, :class:`Gap` for what was lost before it
        could be read, :class:`CaughtUp` and :class:`TopicDeleted`. After lost connections and
        restarts of the server it goes on behind the last event, for as long as it takes: nothing
        is missed, nothing comes twice. It ends when all topics are deleted. To go on in another
        process, keep the ``seq`` of the last record. Records written by ``node`` are left out.
        """
        start = {topics: from_seq} if isinstance(topics, str) else topics
        return self._follow(Follower(start, tail, limit, node))

    def claim(
        self, topic: str, *, max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]:
        """Leases up to ``max`` (1000) jobs for ``lease_ms``, by default the queue's.

        If there is none, the server waits up to ``wait_ms`` (30,000); an empty list is a normal
        answer. A claim whose answer is lost is not repeated: its jobs come back after the lease.
        """
        return self._call(_calls.claim_waited(topic, self.node, max, lease_ms, wait_ms)).jobs

    def ack(self, *jobs: Job) -> Settled:
        """Completes jobs of one topic. Those whose lease was over are in ``skipped``."""
        return self._call(_calls.settle("ack", jobs))

    def nack(self, *jobs: Job, delay_ms: int = 0, started: bool = True) -> Settled:
        """Gives jobs of one topic back, to be handed out again after ``delay_ms`` (up to a day).

        With ``started=False`` the delivery does not count towards the queue's limit.
        """
        return self._call(_calls.nack(jobs, delay_ms, started))

    def extend(self, *jobs: Job, lease_ms: int | None = None) -> Settled:
        """Makes the leases of jobs of one topic end ``lease_ms`` from now, by default the queue's."""
        return self._call(_calls.settle("extend", jobs, lease_ms=lease_ms))

    def topic(self, name: str) -> dict[str, Any]:
        """A topic's counters and configuration, as the API has them."""
        return self._call(_calls.state(name))

    def put_topic(self, name: str, **config: Any) -> dict[str, Any]:
        """Creates a topic (``type="queue"`` or a log), or replaces its configuration.

        What is left out returns to its default, on a topic that exists, too. A field that the
        server does not know is refused.
        """
        return self._call(_calls.put(name, config))

    def ensure_topic(self, name: str, **config: Any) -> bool:
        """Creates a topic if there is none, and returns whether it did. One that exists stays as
        it is (but for one that comes about in the moment between the two calls)."""
        try:
            self.topic(name)
        except WeirError as error:
            if error.code != "topic_not_found":
                raise
            return bool(self.put_topic(name, **config).get("created"))
        return False

    def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Deletes a topic with all its records, and returns whether there was one."""
        return self._call(_calls.delete(name, if_empty))

    def worker(
        self,
        topic: str,
        handler: Callable[[Job], Any],
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        delay: _work.RetryDelay | None = None,
        signals: bool = True,
    ) -> Worker:
        """A worker to be run, and stopped from another thread. See :meth:`work`."""
        return Worker(self._settings, topic, handler, concurrency, lease_ms, delay, signals)

    def work(
        self,
        topic: str,
        handler: Callable[[Job], Any],
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        delay: _work.RetryDelay | None = None,
        signals: bool = True,
    ) -> _work.WorkSummary:
        """Calls ``handler`` with one job of the queue after the other, in ``concurrency`` threads.

        A handler that returns completes its job; one that raises gives it back, for as many
        milliseconds as ``delay(job, error)`` says (:func:`retry_delay` by default) or as
        :class:`Nack` has. After ``max_deliveries`` of the queue the server makes it a dead
        letter. Leases of ``lease_ms`` are extended for as long as the handler runs; jobs of a
        worker that dies come to others when they end. If a lease is lost, ``job.lost`` is true.

        Runs until SIGTERM or SIGINT (if ``signals``, in the main thread) or :meth:`Worker.stop`:
        then it takes nothing more and returns when what it holds is finished. A second signal has
        its usual effect. While the server is away it waits; what the server refuses for good is
        raised, after what it holds is finished.
        """
        return self.worker(
            topic, handler, concurrency=concurrency, lease_ms=lease_ms, delay=delay, signals=signals
        ).run()

    def _call(self, call: Call[T], retry_for: float | None = None) -> T:
        return call_blocking(self._http, self._settings, call, retry_for)

    def _follow(self, f: Follower) -> Iterator[Event]:
        while not f.done:
            try:
                if f.needs_session:
                    f.opened(self._call(f.ask(), 0 if f.began else None))
                try:
                    with self._http.stream("GET", f.path(), headers=f.headers(), timeout=STREAM_TIMEOUT) as answer:
                        if not answer.is_success:
                            answer.read()
                        f.streaming(answer)
                        for chunk in answer.iter_raw():
                            yield from f.feed(chunk)
                except httpx.RequestError as error:
                    raise lost_connection(error) from error
                f.ended()
            except WeirError as error:
                events, pause = f.failed(error, final=not f.began)
                yield from events
                _calls.log.info("follow: %s; again in %.2f s", error, pause)
                time.sleep(pause)
