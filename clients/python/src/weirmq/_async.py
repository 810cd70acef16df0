"""The asynchronous client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _calls, _work
from ._errors import WeirError
from ._follow import Event, Follower
from ._http import STREAM_TIMEOUT, Settings, Verify, send_async
from ._retry import Call, Tries, lost_connection
from ._stop import on_signals
from ._types import Job, Message, Page, Published, Settled, Tier, _NoKey

T = TypeVar("T")


class AsyncClient:
    """As :class:`Client`, for asyncio: the same calls, rules and errors."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        verify: Verify = True,
        node: str | None = None,
        timeout: float = _calls.CALL_TIMEOUT,
        retry_for: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connects at the first call; the parameters are those of :class:`Client`."""
        self._settings = Settings.of(url, key, node, verify, timeout, retry_for)
        self._http = httpx.AsyncClient(transport=transport, **self._settings.options())

    @property
    def url(self) -> str:
        """The server's address."""
        return self._settings.url

    @property
    def node(self) -> str:
        """Whom leases belong to."""
        return self._settings.node

    async def close(self) -> None:
        """Drops the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(
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
        """Appends one record; see :meth:`Client.publish`."""
        item = Message(data, tag, node, meta, priority, fair_key, delay_ms)
        return await self.publish_batch(
            topic,
            [item],
            idempotency_key=idempotency_key,
            create=create,
            config=config,
            disable_backpressure=disable_backpressure,
        )

    async def publish_batch(
        self,
        topic: str,
        items: Iterable[Message | Any],
        *,
        idempotency_key: str | _NoKey | None = None,
        create: bool | None = None,
        config: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Published:
        """Appends 1 to 10,000 records, all or none; see :meth:`Client.publish_batch`."""
        return await self._call(_calls.publish(topic, items, idempotency_key, create, config, disable_backpressure))

    async def diff(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int | None = None,
        wait_ms: int = 0,
        max_batch_bytes: int | None = None,
        node: str | Sequence[str] | None = None,
    ) -> Page:
        """Reads the records after ``from_seq``; see :meth:`Client.diff`."""
        return await self._call(_calls.diff(topic, from_seq, limit, wait_ms, max_batch_bytes, node))

    def follow(
        self,
        topics: str | Mapping[str, int],
        from_seq: int = 0,
        *,
        tail: bool = False,
        limit: int | None = None,
        node: str | Sequence[str] | None = None,
    ) -> AsyncIterator[Event]:
        """Yields what is and what will be written to topics; see :meth:`Client.follow`."""
        start = {topics: from_seq} if isinstance(topics, str) else topics
        return self._follow(Follower(start, tail, limit, node))

    async def claim(
        self, topic: str, *, max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> list[Job]:
        """Leases jobs; see :meth:`Client.claim`."""
        return (await self._call(_calls.claim_waited(topic, self.node, max, lease_ms, wait_ms))).jobs

    async def ack(self, *jobs: Job) -> Settled:
        """Completes jobs; see :meth:`Client.ack`."""
        return await self._call(_calls.settle("ack", jobs))

    async def nack(self, *jobs: Job, delay_ms: int = 0, started: bool = True) -> Settled:
        """Gives jobs back; see :meth:`Client.nack`."""
        return await self._call(_calls.nack(jobs, delay_ms, started))

    async def extend(self, *jobs: Job, lease_ms: int | None = None) -> Settled:
        """Makes leases end later; see :meth:`Client.extend`."""
        return await self._call(_calls.settle("extend", jobs, lease_ms=lease_ms))

    async def topic(self, name: str) -> dict[str, Any]:
        """A topic's counters and configuration, as the API has them."""
        return await self._call(_calls.state(name))

    async def put_topic(self, name: str, **config: Any) -> dict[str, Any]:
        """Creates or reconfigures a topic; see :meth:`Client.put_topic`."""
        return await self._call(_calls.put(name, config))

    async def ensure_topic(self, name: str, **config: Any) -> bool:
        """Creates a topic if there is none; see :meth:`Client.ensure_topic`."""
        try:
            await self.topic(name)
        except WeirError as error:
            if error.code != "topic_not_found":
                raise
            return bool((await self.put_topic(name, **config)).get("created"))
        return False

    async def delete_topic(self, name: str, *, if_empty: bool = False) -> bool:
        """Deletes a topic with all its records, and returns whether there was one."""
        return await self._call(_calls.delete(name, if_empty))

    def worker(
        self,
        topic: str,
        handler: Callable[[Job], Awaitable[Any]],
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        delay: _work.RetryDelay | None = None,
        signals: bool = True,
    ) -> AsyncWorker:
        """A worker to be run, and stopped by its :meth:`AsyncWorker.stop`; see :meth:`work`."""
        return AsyncWorker(self, topic, handler, concurrency, lease_ms, delay, signals)

    async def work(
        self,
        topic: str,
        handler: Callable[[Job], Awaitable[Any]],
        *,
        concurrency: int = 1,
        lease_ms: int = 30_000,
        delay: _work.RetryDelay | None = None,
        signals: bool = True,
    ) -> _work.WorkSummary:
        """Awaits ``handler`` with job after job, up to ``concurrency`` at a time.

        As :meth:`Client.work`; besides, a handler whose lease is lost is cancelled, and cancelling
        this call cancels the handlers and gives their jobs back at once.
        """
        worker = self.worker(
            topic, handler, concurrency=concurrency, lease_ms=lease_ms, delay=delay, signals=signals
        )
        return await worker.run()

    async def _call(self, call: Call[T], retry_for: float | None = None, timeout: float | None = None) -> T:
        tries = Tries(call, self._settings.retry_for if retry_for is None else retry_for, time.monotonic())
        request = self._settings.request(call, self._http.cookies, timeout)
        while True:
            try:
                try:
                    return tries.answered(await send_async(self._http, request))
                except httpx.RequestError as error:
                    raise lost_connection(error) from error
            except WeirError as error:
                await asyncio.sleep(tries.failed(error, time.monotonic()))

    async def _follow(self, f: Follower) -> AsyncIterator[Event]:
        while not f.done:
            try:
                if f.needs_session:
                    f.opened(await self._call(f.ask(), 0 if f.began else None))
                try:
                    async with self._http.stream(
                        "GET", f.path(), headers=f.headers(), timeout=STREAM_TIMEOUT
                    ) as answer:
                        if not answer.is_success:
                            await answer.aread()
                        f.streaming(answer)
                        async for chunk in answer.aiter_raw():
                            for event in f.feed(chunk):
                                yield event
                except httpx.RequestError as error:
                    raise lost_connection(error) from error
                f.ended()
            except WeirError as error:
                events, pause = f.failed(error, final=not f.began)
                for event in events:
                    yield event
                _calls.log.info("follow: %s; again in %.2f s", error, pause)
                await asyncio.sleep(pause)


class AsyncWorker:
    """A worker on a queue; made by :meth:`AsyncClient.worker`."""

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        handler: Callable[[Job], Awaitable[Any]],
        concurrency: int,
        lease_ms: int,
        delay: _work.RetryDelay | None,
        signals: bool,
    ) -> None:
        _work.check_options(handler, concurrency, lease_ms)
        self._signals = signals
        self._loop = _work.Loop(client, topic, client.node, handler, concurrency, lease_ms, delay)

    def stop(self) -> None:
        """Take nothing more; :meth:`run` returns when what is held is finished."""
        self._loop.stop()

    async def run(self) -> _work.WorkSummary:
        """Works until it is stopped; see :meth:`AsyncClient.work`."""
        with on_signals(self._loop.stop, self._signals):
            return await self._loop.run()
