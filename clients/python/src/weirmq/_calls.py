"""The calls of the API: how each is asked and how its answer is read. Nothing here does I/O."""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ._errors import Unexpected
from ._retry import Call
from ._types import NO_KEY, Gap, Job, Message, Page, Published, Record, Settled, _NoKey

log = logging.getLogger("weirmq")

CALL_TIMEOUT = 30.0  # seconds that a call may take which does not wait by itself
CONNECT_TIMEOUT = 5.0
DEFAULT_URL = "http://127.0.0.1:4000"


def base_url(url: str | None) -> str:
    """The server's address: as given, or WEIR_URL, or this machine.

    Raises ValueError if it is none.
    """
    variable = "" if url else os.environ.get("WEIR_URL", "")
    text = url or variable or DEFAULT_URL
    where = "WEIR_URL" if variable else "url"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError(f"{where}: the server's address is http://host:port or https://host:port, without a path")
    if parts.username is not None:
        raise ValueError(f"{where}: the key is no part of the server's address: use key= or WEIR_API_KEY")
    if "," in parts.netloc:
        raise ValueError(f"{where}: the server's address is one: addresses behind commas are not supported")
    parts.port  # raises ValueError if it is none
    return f"{parts.scheme}://{parts.netloc}"


def headers(key: str | None) -> dict[str, str]:
    """What every request carries; the key is the one given, or WEIR_API_KEY.

    Raises ValueError, which does not quote it, for a key that no header can hold.
    """
    key = key if key is not None else os.environ.get("WEIR_API_KEY")
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError("the key has characters that no key has, such as the end of a line")
    # The server is usually nearby, where to unpack an answer costs more than to read it.
    plain = {"Accept-Encoding": "identity"}
    return {"Authorization": f"Bearer {key}", **plain} if key else plain


def node_name(node: str | None) -> str:
    """Whom leases belong to: unique to this client unless it is given."""
    return node or f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON as the server reads it. Raises TypeError or ValueError for what is no JSON."""
    return json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _path(topic: str, verb: str = "") -> str:
    if topic in ("", ".", ".."):
        raise ValueError(f"{topic!r} is no topic's name")
    return f"/v0/topics/{quote(topic, safe='')}" + (f"/{verb}" if verb else "")


def _compact(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _record_body(item: Any) -> dict[str, Any]:
    m = item if isinstance(item, Message) else Message(item)
    body = _compact(tag=m.tag, node=m.node, priority=m.priority, fair_key=m.fair_key)
    if m.meta:
        body["meta"] = dict(m.meta)
    if m.delay_ms:
        body["delay_ms"] = m.delay_ms
    return {"data": m.data, **body}


def publish(
    topic: str,
    items: Iterable[Any],
    key: str | _NoKey | None,
    create: bool | None,
    config: Mapping[str, Any] | None,
    disable_backpressure: bool,
) -> Call[Published]:
    """Append records, all or none. Without a key one is made, so that every try has the same."""
    if isinstance(items, (str, bytes, Mapping)):
        raise TypeError(f"a batch is several messages, not one {type(items).__name__}; publish takes one")
    if key is None:
        key = uuid.uuid4().hex
    body: dict[str, Any] = {"records": [_record_body(item) for item in items]}
    body.update(_compact(create=create, config=None if config is None else dict(config)))
    if not isinstance(key, _NoKey):
        body["idempotency_key"] = key
    if disable_backpressure:
        body["disable_backpressure"] = True
    sent = len(body["records"])

    def parse(answer: dict[str, Any], repeated: bool) -> Published:
        count, deduped = _int(answer, "count"), bool(answer.get("deduped"))
        if count != sent and not deduped:
            raise Unexpected(200, f"the answer says that {count} of {sent} records are stored; is this a weir server?")
        return Published(
            topic=topic,
            first_seq=_int(answer, "first_seq"),
            last_seq=_int(answer, "last_seq"),
            count=count,
            head_seq=_int(answer, "head_seq"),
            created=bool(answer.get("created")),
            deduped=deduped,
            seqs=tuple(answer.get("seqs") or ()),
            warnings=_warnings(answer),
        )

    return Call("POST", _path(topic), encode(body), parse, repeatable=key is not NO_KEY)


def diff(
    topic: str,
    from_seq: int,
    limit: int | None,
    wait_ms: int,
    max_batch_bytes: int | None,
    node: str | Sequence[str] | None,
) -> Call[Page]:
    """Read after a cursor."""
    body = _compact(
        from_seq=from_seq,
        limit=limit,
        wait_ms=wait_ms or None,
        max_batch_bytes=max_batch_bytes,
        node=node if node is None or isinstance(node, str) else list(node),
        include_tags=True,
        include_meta=True,
    )

    def parse(answer: dict[str, Any], repeated: bool) -> Page:
        _warnings(answer)
        gap = answer.get("tombstone")
        return Page(
            topic=topic,
            records=tuple(record(topic, r) for r in _list(answer, "records")),
            next_from_seq=_int(answer, "next_from_seq"),
            head_seq=_int(answer, "head_seq"),
            earliest_seq=_int(answer, "earliest_seq"),
            caught_up=bool(answer.get("caught_up")),
            lag=_int(answer, "lag"),
            gap=None if gap is None else gap_of(topic, gap),
        )

    return Call("POST", _path(topic, "diff"), encode(body), parse, repeatable=True, wait=wait_ms / 1000)


@dataclass(frozen=True)
class Claimed:
    """Jobs, and for how many seconds the server had waited when it leased them."""

    jobs: list[Job]
    waited: float


def claim_waited(topic: str, node: str, most: int, lease_ms: int | None, wait_ms: int) -> Call[Claimed]:
    """Lease jobs. It is not repeated after a lost answer, whose jobs are leased already."""
    body = _compact(node=node, max=most, lease_ms=lease_ms, wait_ms=wait_ms or None)

    def parse(answer: dict[str, Any], repeated: bool) -> Claimed:
        _warnings(answer)
        waited = (answer.get("performance") or {}).get("claim_wait_ms", 0.0)
        return Claimed([_job(topic, node, j) for j in _list(answer, "claimed")], float(waited) / 1000)

    return Call("POST", _path(topic, "claim"), encode(body), parse, repeatable=False, wait=wait_ms / 1000)


def settle(verb: str, jobs: Sequence[Job], **fields: Any) -> Call[Settled]:
    """Ack, nack or extend jobs of one topic and node; the lease ids make repeating harmless."""
    if not jobs:
        raise ValueError(f"{verb} needs a job")
    topic, node = jobs[0].topic, jobs[0].node
    if any((j.topic, j.node) != (topic, node) for j in jobs):
        raise ValueError(f"the jobs of one {verb} are of one topic and were claimed by one client")
    body = {"node": node, "seqs": [j.seq for j in jobs], "lease_ids": [j.lease_id for j in jobs]}
    done = {"ack": "acked", "nack": "nacked", "extend": "extended"}[verb]

    def parse(answer: dict[str, Any], repeated: bool) -> Settled:
        _warnings(answer)
        ends = answer.get("deadlines") or {}
        return Settled(
            count=_int(answer, done),
            skipped=tuple(_list(answer, "skipped")),
            repeated=repeated,
            deadlines={int(seq): int(end) for seq, end in ends.items()},
        )

    return Call("POST", _path(topic, verb), encode({**body, **_compact(**fields)}), parse, repeatable=True)


def nack(jobs: Sequence[Job], delay_ms: int, started: bool) -> Call[Settled]:
    """Give jobs back."""
    return settle("nack", jobs, delay_ms=delay_ms or None, started=None if started else False)


def state(topic: str) -> Call[dict[str, Any]]:
    """A topic's counters and configuration, without counting as reading."""
    return Call("GET", _path(topic) + "?touch=false", None, _configured, repeatable=True)


def put(topic: str, config: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Create or reconfigure a topic."""
    return Call("PUT", _path(topic) + "?strict=true", encode(config), _configured, repeatable=True)


def delete(topic: str, if_empty: bool) -> Call[bool]:
    """Delete a topic. Repeating it could delete one that was created since."""
    path = _path(topic) + ("?if_empty=true" if if_empty else "")

    def parse(answer: dict[str, Any], repeated: bool) -> bool:
        deleted = answer.get("deleted")
        if not isinstance(deleted, bool):
            raise Unexpected(200, "the answer has no deleted; is this a weir server?")
        return deleted

    return Call("DELETE", path, None, parse, repeatable=False)


def session(topics: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Create a watch session. One whose answer is lost ends by itself."""
    return Call("POST", "/v0/watch", encode({"topics": topics, **options}), _whole, repeatable=True)


def _whole(answer: dict[str, Any], repeated: bool) -> dict[str, Any]:
    _warnings(answer)
    return answer


def _configured(answer: dict[str, Any], repeated: bool) -> dict[str, Any]:
    if not isinstance(answer.get("config"), dict):
        raise Unexpected(200, "the answer has no config; is this a weir server?")
    return _whole(answer, repeated)


def record(topic: str, wire: Mapping[str, Any]) -> Record:
    """A record as the server sends it."""
    return Record(
        topic=topic,
        seq=_int(wire, "$seq"),
        ts=int(wire.get("$ts", 0)),
        data=wire.get("data"),
        tag=wire.get("$tag"),
        node=wire.get("$node"),
        meta=wire.get("meta") or {},
        priority=wire.get("$priority", "normal"),
        fair_key=wire.get("$fair_key"),
    )


def _job(topic: str, node: str, wire: Mapping[str, Any]) -> Job:
    return Job(
        topic=topic,
        seq=_int(wire, "$seq"),
        data=wire.get("data"),
        node=node,
        lease_id=str(wire.get("lease_id", "")),
        deadline=int(wire.get("deadline", 0)),
        deliveries=int(wire.get("deliveries", 1)),
        ts=int(wire.get("$ts", 0)),
        tag=wire.get("$tag"),
        meta=wire.get("meta") or {},
        priority=wire.get("$priority", "normal"),
        fair_key=wire.get("$fair_key"),
    )


def gap_of(topic: str, wire: Mapping[str, Any]) -> Gap:
    """A tombstone. Of a topic that was created again, reading goes on at its beginning. The first
    one of a stream does not say why, but after a mere loss nothing of the range is left."""
    last, earliest = _int(wire, "gap_to"), _int(wire, "earliest_seq")
    reason = str(wire.get("reason", ""))
    if reason == "recreated" or earliest <= last:
        return Gap(topic, _int(wire, "gap_from"), last, "recreated", max(earliest, 1) - 1)
    return Gap(topic, _int(wire, "gap_from"), last, reason, last)


def _int(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if not isinstance(value, int):
        raise Unexpected(200, f"the answer's {name} is no integer; is this a weir server?")
    return value


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise Unexpected(200, f"the answer has no {name}; is this a weir server?")
    return value


def _warnings(answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What the server did not understand, or did not do; it is logged, too."""
    warnings = tuple(answer.get("warnings") or ())
    for w in warnings:
        log.warning("the server warns: %s: %s", w.get("code"), w.get("message"))
    return warnings
