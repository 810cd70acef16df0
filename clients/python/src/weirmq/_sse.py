"""Server-sent events from the bytes of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._errors import Unexpected

LARGEST_FRAME = 256 << 20  # bytes; frames of the server are far smaller
_RETRY_MS = (50, 60_000)  # the server can neither make a client spin nor send it away for good


@dataclass(frozen=True)
class Frame:
    """One event; ``id`` is empty if it has none."""

    id: str
    event: str
    data: str


class FrameParser:
    """Splits a stream into frames; one that the end of the stream cuts off never comes out.

    ``retry`` is the server's last hint, in seconds, ``None`` before there is one.
    """

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self.retry: float | None = None
        self._largest = largest
        self._buffer = bytearray()
        self._searched = 0
        self._size = 0
        self._reset()

    def _reset(self) -> None:
        self._id, self._event, self._data = "", "", list[str]()
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that ``chunk`` completes. Raises Unexpected if one is too large or no text."""
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(self._buffer[start:end])
            start = end + 1
            frame = self._line(line.removesuffix(b"\r"))
            if frame is not None:
                yield frame
        del self._buffer[:start]
        self._searched = len(self._buffer)
        if self._searched + self._size > self._largest:
            raise Unexpected(200, f"a frame of the stream has more than {self._largest} bytes")

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            frame = Frame(self._id, self._event, "\n".join(self._data)) if self._data else None
            self._reset()
            return frame
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise Unexpected(200, "a frame of the stream is no text") from error
        value = value.removeprefix(" ")
        self._size += len(line)
        if name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "data":
            self._data.append(value)
        elif name == "retry" and value.isascii() and value.isdigit():
            least, most = _RETRY_MS
            self.retry = min(max(int(value[:9]), least), most) / 1000
        return None
