"""What goes wrong, as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WeirError(Exception):
    """The server refused a call.

    ``code`` is the error's code of the API, such as ``"topic_not_found"`` or ``"throttled"``,
    ``status`` the HTTP status (0 if there was no answer), ``message`` what a person should read,
    ``detail`` the error's detail, and ``retry_after`` for how many seconds the server asked to
    wait, or ``None``.
    """

    def __init__(
        self,
        code: str,
        status: int,
        message: str,
        detail: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.detail: dict[str, Any] = dict(detail or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code} ({self.status}): {self.message}" if self.status else f"{self.code}: {self.message}"


class Unreachable(WeirError):
    """There was no answer; the code is ``"unreachable"``.

    ``sent`` is false if no connection came about, so that the call has had no effect. If it is
    true, the server may or may not have done what was asked.
    """

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__("unreachable", 0, message)
        self.sent = sent


class Unexpected(WeirError):
    """The answer is none of this API, as from a proxy in between; the code is ``"unexpected"``."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__("unexpected", status, message, retry_after=retry_after)
