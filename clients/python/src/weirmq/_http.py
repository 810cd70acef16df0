"""How both clients reach the server."""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

import httpx

from . import _calls
from ._errors import Unexpected
from ._follow import SILENCE
from ._retry import Call

Verify = Union[ssl.SSLContext, str, bool]

# Proxies of the environment are not for a server on this machine.
DIRECT = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}
STREAM_TIMEOUT = httpx.Timeout(SILENCE, connect=_calls.CONNECT_TIMEOUT)
LARGEST_ANSWER = 256 << 20  # bytes; no answer of the API comes near it


def send(http: httpx.Client, request: httpx.Request) -> httpx.Response:
    """The whole answer, or an error once the time for the request is over."""
    until = _until(request)
    answer = http.send(request, stream=True)
    try:
        answer.stream = Whole(answer, until)
        answer.read()
    except BaseException:
        answer.close()
        raise
    return answer


async def send_async(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """What :func:`send` is, with ``await``."""
    until = _until(request)
    answer = await http.send(request, stream=True)
    try:
        answer.stream = Whole(answer, until)
        await answer.aread()
    except BaseException:
        await answer.aclose()
        raise
    return answer


def _until(request: httpx.Request) -> float:
    return time.monotonic() + float(request.extensions["timeout"]["read"])


class Whole(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer that has to be there in time: the timeout of httpx is one for each piece."""

    def __init__(self, answer: httpx.Response, until: float) -> None:
        self._of: Any = answer.stream
        self._status, self._until, self._left = answer.status_code, until, LARGEST_ANSWER

    def _check(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise Unexpected(self._status, f"the answer is longer than {LARGEST_ANSWER >> 20} MiB; is this a weir server?")
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout("the answer did not end in time")
        return piece

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._of:
            yield self._check(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._of:
            yield self._check(piece)

    def close(self) -> None:
        self._of.close()

    async def aclose(self) -> None:
        await self._of.aclose()


@functools.lru_cache(maxsize=256)
def address(base: str, path: str) -> httpx.URL:
    """A URL that httpx need not parse and join for each request, which takes a tenth of the time of one."""
    return httpx.URL(base + path)


@dataclass(frozen=True)
class Settings:
    """What a client was made with."""

    url: str
    headers: dict[str, str] = field(repr=False)
    node: str
    verify: Verify
    timeout: float
    retry_for: float

    @classmethod
    def of(
        cls, url: str | None, key: str | None, node: str | None, verify: Verify, timeout: float, retry_for: float
    ) -> Settings:
        """Settings with their defaults in place."""
        return cls(_calls.base_url(url), _calls.headers(key), _calls.node_name(node), verify, timeout, retry_for)

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        """Whom to trust, read once: that takes longer than many calls."""
        if isinstance(self.verify, str):
            return ssl.create_default_context(cafile=self.verify)
        return httpx.create_ssl_context(verify=self.verify)

    def options(self) -> dict[str, Any]:
        """The options of an httpx client. It follows no redirect: the server makes none."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        return {"base_url": self.url, "headers": self.headers, "verify": self.context, "limits": limits, "mounts": DIRECT}

    @functools.cached_property
    def _heads(self) -> tuple[httpx.Headers, httpx.Headers]:
        """What requests carry, without a body and with one."""
        own = {"User-Agent": f"weirmq python-httpx/{httpx.__version__}", **self.headers}
        return httpx.Headers(own), httpx.Headers({**own, "Content-Type": "application/json"})

    def request(
        self, call: Call[Any], cookies: httpx.Cookies, timeout: float | None, **extensions: Any
    ) -> httpx.Request:
        """The request of a call, with the cookies of a client. A client's own build_request merges
        options that are always the same, which takes longer than all that is done here."""
        seconds = (self.timeout if timeout is None else timeout) + call.wait
        limits = {"connect": min(seconds, _calls.CONNECT_TIMEOUT), "read": seconds, "write": seconds, "pool": seconds}
        return httpx.Request(
            call.method,
            address(self.url, call.path),
            headers=self._heads[call.body is not None],
            cookies=cookies,
            content=call.body,
            extensions={"timeout": limits, **extensions},
        )
