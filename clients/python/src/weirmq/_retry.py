"""When a call is tried again, and after how long. Nothing here does I/O, and a clock is read only for
an answer that asks for a date and has none itself.

1. An answer with 429, 503 or 507 says that nothing was done, but for a 503 of Envoy (see
   ``passed_on``). Every call is tried again, not before ``Retry-After`` and up to half as long
   later.
2. A connection that did not come about: nothing was sent. Every call is tried again.
3. A connection that broke later, no answer in time, or a 5xx: it may have been done. Only calls
   that bear repetition are tried again: reads, PUT, writes with an idempotency key, and ack, nack
   and extend under their lease ids.
4. Anything else is final, and so is everything once the time for retries is over.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

import httpx

from ._errors import Unexpected, Unreachable, WeirError

T = TypeVar("T")

BASE_PAUSE = 0.05  # seconds before the first retry, doubled for each that follows
LONGEST_PAUSE = 2.0
LONGEST_RETRY_AFTER = 60.0  # no server sends a client away for longer at once
REFUSED_UNDONE = frozenset({429, 503, 507})

# A request that ended so has not been sent.
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and what its answer becomes. ``wait`` is for how many seconds the server may
    hold it on purpose; ``repeatable`` that doing it twice is doing it once."""

    method: str
    path: str
    body: bytes | None
    parse: Callable[[dict[str, Any], bool], T]  # the answer, and whether an earlier try's was lost
    repeatable: bool
    wait: float = 0.0


def backoff(tries: int, rnd: Callable[[], float] = random.random, longest: float = LONGEST_PAUSE) -> float:
    """Seconds before retry number ``tries``: doubled each time, less a random half."""
    pause = min(BASE_PAUSE * 2.0 ** min(tries - 1, 30), longest)
    return pause * (1 - rnd() / 2)


def pause_before(
    tries: int, error: WeirError, rnd: Callable[[], float] = random.random, longest: float = LONGEST_PAUSE
) -> float:
    """Seconds before retry number ``tries`` of what failed with ``error``."""
    pause = backoff(tries, rnd, longest)
    if error.retry_after is not None:
        pause = max(pause, error.retry_after * (1 + rnd() / 2))
    return pause


def undone(error: WeirError) -> bool:
    """Whether what failed with ``error`` was not done for certain."""
    if isinstance(error, Unreachable):
        return not error.sent
    return error.status in REFUSED_UNDONE and not isinstance(error, PassedOn)


def can_retry(error: WeirError, repeatable: bool) -> bool:
    """Whether the same call may succeed later and does no harm if it was done before."""
    return undone(error) or repeatable and (isinstance(error, Unreachable) or error.status >= 500)


def is_passing(error: WeirError) -> bool:
    """Whether the server may be back later, whatever became of the call."""
    return can_retry(error, repeatable=True)


class Tries(Generic[T]):
    """The tries of one call: tells a driver, which has the clock and the connection, what to do.

    ``now`` is any clock in seconds that does not go back, and ``retry_for`` for how many seconds
    after the first try another one may begin.
    """

    def __init__(self, call: Call[T], retry_for: float, now: float, rnd: Callable[[], float] = random.random) -> None:
        self._call, self._until, self._rnd = call, now + retry_for, rnd
        self._tries, self._lost = 0, False

    def answered(self, answer: httpx.Response) -> T:
        """The result of the call, or its error, which goes to :meth:`failed`."""
        error = error_of(answer)
        if error is not None:
            raise error
        return self._call.parse(body_of(answer), self._lost)

    def failed(self, error: WeirError, now: float) -> float:
        """Seconds to wait before the next try; raises ``error`` if there is none."""
        self._tries += 1
        self._lost = self._lost or not undone(error)
        pause = pause_before(self._tries, error, self._rnd)
        final = isinstance(error, Untrusted) or not can_retry(error, self._call.repeatable)
        if final or now + pause > self._until:
            raise error
        return pause


class Untrusted(Unreachable):
    """The server's certificate is not trusted; trying again does not help."""


class PassedOn(Unexpected):
    """A proxy has lost the server, which may have done what was asked."""


def passed_on(text: bytes) -> bool:
    """Whether the text of a 503 may be that of a proxy for a connection that it lost, so that the
    request may have been carried out: of Varnish, which never says more, or of Envoy, as in Istio,
    unless it says that there was none. Others answer 502 for that, and 503 only for what they have
    not passed on.
    """
    if b"Varnish cache server" in text:
        return True
    _, lost, reason = text.partition(b"disconnect/reset before headers")
    return bool(lost) and b"connection failure" not in reason and b"reset reason: overflow" not in reason


def lost_connection(error: httpx.RequestError) -> Unreachable:
    """The error of a request without an answer."""
    text = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Untrusted(f"the server's certificate is not trusted: {text}", sent=False)
        cause = cause.__cause__ or cause.__context__
    return Unreachable(f"no answer from the server: {text}", sent=not isinstance(error, UNSENT))


def error_of(answer: httpx.Response) -> WeirError | None:
    """What an answer refuses with, ``None`` if it is a good one."""
    if answer.is_success:
        return None
    try:
        error = json.loads(answer.content)["error"]
        code, message = error["code"], error["message"]
        detail = error.get("detail") or {}
        if not (isinstance(code, str) and isinstance(message, str) and isinstance(detail, dict)):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        text = "the answer carries no error of /v0; is this a weir server?"
        to = answer.next_request.url if answer.next_request else None  # which is not followed
        if to and (to.scheme, to.netloc) != (answer.request.url.scheme, answer.request.url.netloc):
            text = f"the server sends requests on to {to.scheme}://{to.netloc.decode()}: use that address"
        kind = PassedOn if answer.status_code == 503 and passed_on(answer.content) else Unexpected
        return kind(answer.status_code, text, retry_after(answer.headers, {}))
    return WeirError(code, answer.status_code, message, detail, retry_after(answer.headers, detail))


def retry_after(headers: Mapping[str, str], detail: Mapping[str, Any]) -> float | None:
    """Seconds to wait: the milliseconds of the detail, before what the header says, which is whole
    seconds or, as some proxies write it, a date. That counts from the date of the answer: the clocks
    may differ.
    """
    ms = detail.get("retry_after_ms")
    if isinstance(ms, (int, float)) and not isinstance(ms, bool) and ms > 0:
        return min(ms / 1000, LONGEST_RETRY_AFTER)
    header = headers.get("Retry-After", "")
    if header.isascii() and header.isdigit():
        return min(float(header), LONGEST_RETRY_AFTER)
    until, now = seconds_of(header), seconds_of(headers.get("Date", ""))
    if until is None:
        return None
    return min(max(until - (time.time() if now is None else now), 0.0), LONGEST_RETRY_AFTER)


def seconds_of(date: str) -> float | None:
    """A date of HTTP, which is always one of UTC, in seconds since 1970; ``None`` if it is none."""
    try:
        return parsedate_to_datetime(date).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object of a good answer."""
    try:
        body = json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        raise Unexpected(answer.status_code, f"the answer is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Unexpected(answer.status_code, "the answer is no JSON object")
    return body
