"""How both clients reach the server."""

from __future__ import annotations

import functools
import ssl
from dataclasses import dataclass, field
from typing import Any, Union

import httpx

from . import _calls
from ._follow import SILENCE
from ._retry import Call

Verify = Union[ssl.SSLContext, str, bool]

# Proxies of the environment are not for a server on this machine.
DIRECT = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}
STREAM_TIMEOUT = httpx.Timeout(SILENCE, connect=_calls.CONNECT_TIMEOUT)


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
