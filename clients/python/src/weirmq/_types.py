"""What goes into calls and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Tier = Literal["critical", "high", "normal", "low", "bulk", "background"]


class _NoKey:
    """The type of NO_KEY."""

    def __repr__(self) -> str:
        return "NO_KEY"


NO_KEY: Final = _NoKey()
"""As ``idempotency_key``: publish without one. A lost answer is then an error, not a retry."""


@dataclass(frozen=True)
class Message:
    """One record to publish, for those that have more than data.

    ``data`` is any JSON value. ``tag`` selects records in deletes and routers; ``node`` says who
    wrote it; ``meta`` is an object of up to 64 keys. For queues: ``priority``, ``fair_key`` (whom
    the job is for) and ``delay_ms`` (no worker gets it earlier, in milliseconds from the write).
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] | None = None
    priority: Tier | None = None
    fair_key: str | None = None
    delay_ms: int = 0


@dataclass(frozen=True)
class Published:
    """Where the records of one publish are.

    ``deduped`` says that the idempotency key was known: the records have been stored by an
    earlier try or call, and these are their numbers. ``warnings`` are the server's.
    """

    topic: str
    first_seq: int
    last_seq: int
    count: int
    head_seq: int
    created: bool
    deduped: bool
    seqs: tuple[int, ...] = ()
    warnings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Record:
    """One record of a topic. ``ts`` is when it was stored, in milliseconds since 1970 UTC."""

    topic: str
    seq: int
    ts: int
    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    priority: str = "normal"
    fair_key: str | None = None


@dataclass(frozen=True)
class Gap:
    """Records ``first_seq`` to ``last_seq`` were lost before they could be read.

    ``reason`` is ``cap``, ``ttl``, ``mixed``, ``source_trim``, ``crash``, ``from_seq_too_old``, or
    ``recreated`` if the topic was deleted and created again. Reading goes on after ``cursor``.
    """

    topic: str
    first_seq: int
    last_seq: int
    reason: str
    cursor: int


@dataclass(frozen=True)
class Page:
    """What one diff read. ``next_from_seq`` is the cursor for the next one; ``lag`` how many
    numbers are ahead of it; ``gap`` what was lost, if anything was."""

    topic: str
    records: tuple[Record, ...]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    gap: Gap | None


@dataclass(eq=False)
class Job:
    """One job under a lease: ack, nack or extend it with the client that claimed it.

    ``deadline`` is when the lease ends by the server's clock, in milliseconds since 1970 UTC, as
    of the claim. ``deliveries`` counts how often the job has been handed out, this time included.
    ``lost`` becomes true if a worker learns that the lease is over: somebody else may have the
    job now, and what the handler still does may be done twice.
    """

    topic: str
    seq: int
    data: Any
    node: str
    lease_id: str
    deadline: int
    deliveries: int
    ts: int = 0
    tag: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    priority: str = "normal"
    fair_key: str | None = None
    lost: bool = False


@dataclass(frozen=True)
class Settled:
    """The answer to an ack, nack or extend.

    ``count`` jobs were done, given back or extended. ``skipped`` are the numbers of those whose
    lease was over. If ``repeated``, the answer to an earlier try was lost, and ``skipped`` may
    have jobs that this try had done. ``deadlines`` (of extend) are the new ones by number, in
    milliseconds since 1970 UTC.
    """

    count: int
    skipped: tuple[int, ...] = ()
    repeated: bool = False
    deadlines: Mapping[int, int] = field(default_factory=dict)
