"""How topics are followed over lost connections and restarts. Nothing here does I/O.

A session on the server remembers the topics; the id of the last frame, sent back as
``Last-Event-ID``, says where to go on. When the session is gone, or no frame has come yet, a new
session is made from the positions that the follower keeps itself. A frame counts as seen once all
of its events have been taken, so nothing is missed and nothing comes twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union
from urllib.parse import quote

import httpx

from . import _calls
from ._errors import Unexpected, Unreachable, WeirError
from ._retry import Call, Untrusted, error_of, is_passing, pause_before
from ._sse import Frame, FrameParser
from ._types import Gap, Record

HEARTBEAT_MS = 15_000
SILENCE = 3 * HEARTBEAT_MS / 1000  # seconds; a peer that vanished does not close the connection


@dataclass(frozen=True)
class CaughtUp:
    """There is nothing more to send of the topic now; its last number is ``head_seq``."""

    topic: str
    head_seq: int


@dataclass(frozen=True)
class TopicDeleted:
    """The topic is gone; the others go on. If it is created again, that comes at the next connection
    at which it is there, as a :class:`Gap` that is ``recreated``, and not before."""

    topic: str


Event = Union[Record, Gap, CaughtUp, TopicDeleted]


class SessionLost(WeirError):
    """The server no longer knows the session, or ended its stream; another one can be had."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, 0, message)


class Follower:
    """The state of one follow across its connections.

    A driver loops: :attr:`needs_session` → :meth:`ask` and :meth:`opened`; then a GET of
    :meth:`path` with :meth:`headers`, whose bytes go to :meth:`feed`; at the end :meth:`ended`. It
    passes every error to :meth:`failed` and waits for as long as that says.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        tail: bool,
        limit: int | None,
        node: str | Sequence[str] | None,
    ) -> None:
        if not topics:
            raise ValueError("there is no topic to follow")
        self._at: dict[str, int | None] = {t: None if tail else seq for t, seq in topics.items()}
        nodes = [node] if isinstance(node, str) else list(node or ())
        options = {"limit": limit, "node": nodes or None, "heartbeat_ms": HEARTBEAT_MS, "include_tags": True}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._wid = ""
        self._last_id = ""
        self._started = False  # the session's stream was open once
        self.began = False  # there was a session
        self._gone: set[str] = set()  # announced as deleted on this connection
        self._tries = 0
        self._retry = 2.0
        self._parser = FrameParser()
        self.done = False

    @property
    def needs_session(self) -> bool:
        # Frames may have been sent and lost: without an id the server cannot know which.
        return not self._wid or (self._started and not self._last_id)

    def ask(self) -> Call[dict[str, Any]]:
        """The call that makes a session."""
        starts = {t: {"tail": True} if seq is None else {"from_seq": seq} for t, seq in self._at.items()}
        return _calls.session(starts, self._options)

    def opened(self, answer: dict[str, Any]) -> None:
        """Takes the session in."""
        wid = answer.get("wid")
        if not isinstance(wid, str) or not wid:
            raise Unexpected(200, "the answer has no wid; is this a weir server?")
        self._wid, self._last_id, self._started, self.began = wid, "", False, True
        for topic, start in (answer.get("topics") or {}).items():
            if topic in self._at and self._at[topic] is None:
                self._at[topic] = int(start["from_seq"])

    def path(self) -> str:
        """The path of the stream."""
        return f"/v0/watch/{quote(self._wid, safe='')}"

    def headers(self) -> dict[str, str]:
        """The headers of the stream's request."""
        resume = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return {"Accept": "text/event-stream", **resume}

    def streaming(self, answer: httpx.Response) -> None:
        """Takes the head of the stream's answer in; one that is not a 2xx has been read."""
        error = error_of(answer)
        if error is not None and error.status == 404:
            raise SessionLost(error.code, error.message)
        # To a session that was this key's, a key with other rights is another one; whether it is
        # still good for a new one is said where that is asked for.
        if error is not None and error.status == 401 and self._started:
            raise SessionLost("not_found", error.message)
        if error is not None:
            raise error
        self._started, self._gone, self._parser = True, set(), FrameParser()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that ``chunk`` completes; take them all before anything else is done."""
        for frame in self._parser.feed(chunk):
            try:
                events = self._take(frame)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise Unexpected(200, f"a frame {frame.event!r} is not what /v0 says") from error
            if frame.id:
                self._last_id = frame.id
            self._tries = 0
            yield from events

    def ended(self) -> None:
        """The stream has ended by itself: as it should if all topics are gone."""
        if self._gone == set(self._at):
            self.done = True
            return
        raise Unreachable("the stream has ended", sent=True)

    def failed(self, error: WeirError, final: bool = False) -> tuple[list[Event], float]:
        """What follows from an error: events, and seconds to wait before the next connection.

        Raises it if there is no point in one.
        """
        if self._parser.retry is not None:
            self._retry = self._parser.retry
        topic = error.detail.get("topic")
        if error.code == "topic_not_found" and self.began and topic in self._at:
            del self._at[topic]
            self.done = not self._at
            return [TopicDeleted(topic)], 0.0
        if isinstance(error, SessionLost):
            if error.code in ("410", "not_found"):
                self._wid = ""
                self._retry = 2.0  # what needs a new session needs no patience
        elif final or isinstance(error, Untrusted) or not is_passing(error):
            raise error
        self._tries += 1
        if error.code == "server_shutting_down":
            return [], self._retry
        return [], pause_before(self._tries, error, longest=self._retry)

    def _take(self, frame: Frame) -> list[Event]:
        """What a frame says. Unknown ones are of a later version."""
        if frame.event not in ("record", "tombstone", "caught-up", "topic-deleted", "error"):
            return []
        body = json.loads(frame.data)
        if frame.event == "error":
            self._error(body)
            return []
        topic = str(body["topic"])
        if frame.event == "record":
            self._move(topic, int(body["to_seq"]))
            return [_calls.record(topic, wire) for wire in body["records"]]
        if frame.event == "tombstone":
            gap = _calls.gap_of(topic, body)
            self._move(topic, gap.cursor)
            return [gap]
        if frame.event == "caught-up":
            return [CaughtUp(topic, int(body.get("head_seq", 0)))]
        if topic in self._at:
            self._gone.add(topic)
        return [TopicDeleted(topic)]

    def _move(self, topic: str, seq: int) -> None:
        if topic in self._at:
            self._at[topic] = seq
            self._gone.discard(topic)  # it was created again

    def _error(self, body: Mapping[str, Any]) -> None:
        code = str(body.get("code", ""))
        message = str(body.get("message") or body.get("error") or "")
        if code == "429":  # advice: pushes are delayed, the stream goes on
            _calls.log.info("the server delays pushes: %s", message)
            return
        raise SessionLost(code, f"the server ended the stream: {message}")
