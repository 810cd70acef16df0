"""What the tests share: a client of both kinds, and transports that fail on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import inspect
import json
import os
import threading
import time
import unittest
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

import weirmq

URL = os.environ.get("WEIR_URL", "")


class Standstill:
    """Adds up by how much short sleeps take too long: for so long the machine stood still."""

    def __init__(self) -> None:
        self.seconds, self._end = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._end.wait(0.01):
            now = time.monotonic()
            if now - before > 0.1:
                self.seconds += now - before
            before = now

    def stop(self) -> float:
        self._end.set()
        self._thread.join()
        return self.seconds


def steadily(test: Callable[[Any], None]) -> Callable[[Any], None]:
    """Runs a test of short leases again if it failed while the machine stood still: they have run out then."""

    @functools.wraps(test)
    def again(self: Any) -> None:
        for left in range(5, -1, -1):
            standstill = Standstill()
            try:
                return test(self)
            except AssertionError:
                if standstill.stop() < 0.3 or left == 0:
                    raise
                self.doCleanups()
                self.setUp()
            finally:
                standstill.stop()

    return again


def name(prefix: str) -> str:
    """A topic that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def eventually(what: str, ok: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits for what other threads and processes bring about."""
    until = time.monotonic() + seconds
    while not ok():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.005)


class Blocking:
    """The asynchronous client with the calls of the other one, so that one test is run for both."""

    def __init__(self, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        transport = options.pop("transport", None)
        if transport is not None:
            options["transport"] = Threaded(transport)
        self._client = self._await(self._make(options))

    async def _make(self, options: dict[str, Any]) -> weirmq.AsyncClient:
        return weirmq.AsyncClient(**options)

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            got = value(*args, **options)
            return self._await(got) if inspect.iscoroutine(got) else self._iterate(got)

        return call

    def _iterate(self, events: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._await(events.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._await(events.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        self._await(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Threaded(httpx.AsyncBaseTransport):
    """A transport for short answers as an asynchronous one."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        def whole() -> httpx.Response:
            answer = self._inner.handle_request(request)
            try:
                body = answer.read()
            finally:
                answer.close()
            return httpx.Response(answer.status_code, headers=answer.headers, content=body)

        request.stream = httpx.ByteStream(await request.aread())
        return await asyncio.to_thread(whole)

    async def aclose(self) -> None:
        self._inner.close()


class Losing(httpx.BaseTransport):
    """Passes requests on, and loses the answers to some: the server has done what was asked."""

    def __init__(self, lost: int, matching: str = "") -> None:
        self._inner = httpx.HTTPTransport()
        self.lost, self._matching, self.requests = lost, matching, list[httpx.Request]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._inner.handle_request(request)
        if self.lost > 0 and self._matching in request.url.path:
            self.lost -= 1
            answer.close()
            raise httpx.ReadError("the answer was lost", request=request)
        return answer

    def close(self) -> None:
        self._inner.close()


class Scripted(httpx.BaseTransport):
    """Answers with one thing after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.times: list[float] = []
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.times.append(time.monotonic())
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, headers, body = answer
        if isinstance(body, bytes):
            return httpx.Response(status, headers=headers, content=body)
        return httpx.Response(status, headers=headers, json=body)


@contextlib.contextmanager
def dripping(piece: bytes, every: float) -> Iterator[str]:
    """The address of a server whose answers come piece by piece, and go on as long as anybody reads them."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not stop.wait(every):
                    self.wfile.write(piece)

        do_GET = do_POST = answer

        def log_message(self, *args: Any) -> None:
            pass

    stop = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        stop.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serving(answer: Callable[[str, dict[str, Any]], Any]) -> Iterator[str]:
    """The address of a server that answers with what a function makes of the verb and the body: an
    object, a refusal, or None for no answer at all. Several threads call it."""

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            text = self.rfile.read(size)  # less if it was broken off
            got = answer(self.path.rsplit("/", 1)[-1], json.loads(text)) if len(text) == size else None
            if got is None:
                self.close_connection = True
                return
            status, headers, body = got if isinstance(got, tuple) else (200, {}, got)
            text = json.dumps(body).encode()
            with contextlib.suppress(OSError):  # a worker that stops breaks its claim off
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads, server.block_on_close = True, False  # connections are kept by their clients
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # how often it looks for its end
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refusal(status: int, code: str, detail: dict[str, Any] | None = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    """An error as the server answers it."""
    error: dict[str, Any] = {"code": code, "message": f"it is {code}"}
    if detail:
        error["detail"] = detail
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, {"error": error}


def pair(test: Any) -> Any:
    """Runs the tests of a class with the synchronous client, and with the other one."""
    module = inspect.getmodule(test)
    for kind, label in ((weirmq.Client, "Sync"), (Blocking, "Async")):
        made = type(f"{test.__name__}{label}", (test, unittest.TestCase), {"kind": kind, "__module__": test.__module__})
        setattr(module, made.__name__, made)
    return test


class Case:
    """A test of either client; ``self.client(...)`` makes one that ends with the test."""

    kind: Any

    def client(self, **options: Any) -> Any:
        made = self.kind(**({"url": URL or "http://127.0.0.1:1"} | options))
        self.addCleanup(made.close)  # type: ignore[attr-defined]
        return made
