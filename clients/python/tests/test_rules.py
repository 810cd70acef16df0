"""When a call is tried again, what it raises, and how streams are read: without a server."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.resources
import inspect
import json
import os
import time
import unittest
from typing import Any
from unittest import mock

import httpx
import kit

import weirmq
from weirmq import _calls, _http, _retry, _sse, _threads, _work
from weirmq._follow import Follower, SessionLost

WRITTEN = (200, {}, {"first_seq": 1, "last_seq": 1, "count": 1, "head_seq": 1, "seqs": [1], "deduped": False})
CLAIMED = (200, {}, {"claimed": []})
LOST = httpx.ReadError("cut")
REFUSED = httpx.ConnectError("refused")


def job(seq: int = 1) -> weirmq.Job:
    return weirmq.Job("q", seq, None, "w", f"lease_{seq}", 0, 1)


@kit.pair
class Retries(kit.Case):
    def test_an_answer_with_retry_after_is_tried_again_not_before(self: Any) -> None:
        for status, code in ((429, "throttled"), (503, "not_ready"), (507, "disk_full")):
            script = kit.Scripted(kit.refusal(status, code, {"retry_after_ms": 300}, Retry_After="1"), CLAIMED)
            self.assertEqual(self.client(transport=script).claim("q"), [])
            waited = script.times[1] - script.times[0]
            self.assertGreaterEqual(waited, 0.3)

    def test_whole_seconds_of_the_header_count_too(self: Any) -> None:
        script = kit.Scripted(kit.refusal(503, "shutting_down", Retry_After="1"), CLAIMED)
        self.client(transport=script).claim("q")
        self.assertGreaterEqual(script.times[1] - script.times[0], 1.0)

    def test_every_try_of_a_publish_has_one_key(self: Any) -> None:
        script = kit.Scripted(LOST, kit.refusal(500, "internal"), REFUSED, WRITTEN)
        self.client(transport=script).publish("t", 1)
        keys = {json.loads(r.content)["idempotency_key"] for r in script.requests}
        self.assertEqual((len(script.requests), len(keys)), (4, 1))

    def test_a_request_carries_what_it_needs_and_little_else(self: Any) -> None:
        script = kit.Scripted(WRITTEN, (200, {}, {"head_seq": 1, "config": {}}))
        client = self.client(transport=script, key="k")
        client.publish("t", "é")
        client.topic("t")
        wrote, read = script.requests
        self.assertEqual(
            {name: value for name, value in wrote.headers.items() if name != "host"},
            {
                "content-type": "application/json",
                "content-length": str(len(wrote.content)),
                "authorization": "Bearer k",
                "accept-encoding": "identity",
                "user-agent": f"weirmq python-httpx/{httpx.__version__}",
            },
        )
        self.assertEqual(set(wrote.headers) - set(read.headers), {"content-type", "content-length"})
        self.assertEqual(wrote.extensions["timeout"], {"connect": 5.0, "read": 30.0, "write": 30.0, "pool": 30.0})

    def test_cookies_of_a_proxy_go_back_to_it(self: Any) -> None:
        script = kit.Scripted((200, {"Set-Cookie": "route=a; Path=/"}, WRITTEN[2]), WRITTEN)
        client = self.client(transport=script)
        client.publish("t", 1)
        client.publish("t", 1)
        self.assertEqual([r.headers.get("Cookie") for r in script.requests], [None, "route=a"])

    def test_one_message_is_no_batch(self: Any) -> None:
        script = kit.Scripted(WRITTEN)
        for one in ("text", b"text", {"to": "a"}):
            with self.assertRaises(TypeError) as got:
                self.client(transport=script).publish_batch("t", one)
            self.assertIn(type(one).__name__, str(got.exception))
        self.assertEqual(script.requests, [])

    def test_two_publishes_have_different_keys(self: Any) -> None:
        script = kit.Scripted(WRITTEN)
        client = self.client(transport=script)
        client.publish("t", 1)
        client.publish("t", 1)
        self.assertNotEqual(*(json.loads(r.content)["idempotency_key"] for r in script.requests))

    def test_what_may_have_been_done_is_not_repeated_if_that_could_do_harm(self: Any) -> None:
        for call in (
            lambda c: c.publish("t", 1, idempotency_key=weirmq.NO_KEY),
            lambda c: c.claim("q"),
            lambda c: c.delete_topic("t"),
        ):
            script = kit.Scripted(LOST)
            with self.assertRaises(weirmq.Unreachable) as got:
                call(self.client(transport=script))
            self.assertEqual((len(script.requests), got.exception.sent, got.exception.status), (1, True, 0))
            self.assertEqual(got.exception.code, "unreachable")

    def test_a_5xx_of_something_in_between_passes(self: Any) -> None:
        for status in (500, 502, 504, 520, 521, 530):
            answer = (status, {}, "the origin is down")
            script = kit.Scripted(answer, WRITTEN)
            self.client(transport=script).publish("t", 1)
            self.assertEqual(len(script.requests), 2)
            with self.assertRaises(weirmq.Unexpected) as got:
                self.client(transport=kit.Scripted(answer)).claim("q")  # it may have been done
            self.assertTrue(_retry.is_passing(got.exception), "and so a worker goes on")

    def test_a_503_of_a_proxy_that_has_lost_the_server_may_have_been_done(self: Any) -> None:
        envoy = "upstream connect error or disconnect/reset before headers. reset reason: "
        for text, done in (
            (envoy + "connection termination", True),
            (envoy + "remote reset", True),
            (envoy + "remote connection failure, transport failure reason: delayed connect error: 111", False),
            (envoy + "overflow", False),
            ("<h1>Error 503 Backend fetch failed</h1><hr><p>Varnish cache server</p>", True),
        ):
            answer = (503, {}, text)
            self.client(transport=kit.Scripted(answer, WRITTEN)).publish("t", 1)
            script = kit.Scripted(answer, CLAIMED)
            if done:
                with self.assertRaises(weirmq.Unexpected) as got:
                    self.client(transport=script).claim("q")
                self.assertTrue(_retry.is_passing(got.exception))
            else:
                self.client(transport=script).claim("q")
            self.assertEqual(len(script.requests), 1 if done else 2, text)

    def test_what_was_not_sent_is_sent_again(self: Any) -> None:
        script = kit.Scripted(REFUSED, REFUSED, CLAIMED)
        self.assertEqual(self.client(transport=script).claim("q"), [])
        self.assertEqual(len(script.requests), 3)

    def test_retries_end(self: Any) -> None:
        script = kit.Scripted(REFUSED)
        with self.assertRaises(weirmq.Unreachable) as got:
            self.client(transport=script, retry_for=0.3).publish("t", 1)
        self.assertFalse(got.exception.sent)
        self.assertGreater(len(script.requests), 1)

    def test_a_wait_that_is_too_long_is_not_begun(self: Any) -> None:
        script = kit.Scripted(kit.refusal(429, "throttled", Retry_After="30"))
        with self.assertRaises(weirmq.WeirError) as got:
            self.client(transport=script, retry_for=5).publish("t", 1)
        self.assertEqual((got.exception.retry_after, len(script.requests)), (30.0, 1))

    def test_refusals_are_raised_at_once(self: Any) -> None:
        script = kit.Scripted(kit.refusal(422, "topic_full", {"topic": "t"}))
        with self.assertRaises(weirmq.WeirError) as got:
            self.client(transport=script).publish("t", 1)
        error = got.exception
        self.assertEqual((error.code, error.status, error.message), ("topic_full", 422, "it is topic_full"))
        self.assertEqual((error.detail, len(script.requests)), ({"topic": "t"}, 1))

    def test_an_answer_of_something_else_is_unexpected(self: Any) -> None:
        for answer in ((404, {}, "not weir"), (200, {}, ["no object"]), (200, {}, {"claimed": 7})):
            with self.assertRaises(weirmq.Unexpected):
                self.client(transport=kit.Scripted(answer)).claim("q")
        for answer in ({}, {"count": 0}, {"count": 2}, {"count": "1"}):
            with self.assertRaises(weirmq.Unexpected, msg=answer):  # nobody says that it is stored
                self.client(transport=kit.Scripted((200, {}, answer))).publish("t", 1)
        for call in (lambda c: c.topic("t"), lambda c: c.put_topic("t"), lambda c: c.delete_topic("t")):
            with self.assertRaises(weirmq.Unexpected):
                call(self.client(transport=kit.Scripted((200, {}, {"status": "ok"}))))
        for status in (200, 400):
            deep = kit.Scripted((status, {}, b"[" * 100_000))
            with self.assertRaises(weirmq.Unexpected):
                self.client(transport=deep).claim("q")

    def test_a_repeated_publish_has_the_first_answer(self: Any) -> None:
        first = (200, {}, {**WRITTEN[2], "count": 3, "deduped": True})
        self.assertEqual(self.client(transport=kit.Scripted(first)).publish("t", 1, idempotency_key="k").count, 3)

    def test_an_answer_that_drips_is_given_up_in_time(self: Any) -> None:
        with kit.dripping(b" ", 0.05) as url:
            began = time.monotonic()
            with self.assertRaises(weirmq.Unreachable) as got:
                self.client(url=url, timeout=0.5, retry_for=0).publish("t", 1)
        self.assertTrue(got.exception.sent)
        self.assertLess(time.monotonic() - began, 20)

    def test_an_answer_without_end_is_given_up(self: Any) -> None:
        with kit.dripping(b" " * 10_000, 0) as url, mock.patch.object(_http, "LARGEST_ANSWER", 1 << 20):
            with self.assertRaises(weirmq.Unexpected):
                self.client(url=url, retry_for=0).topic("t")

    def test_a_redirect_names_the_address_to_use(self: Any) -> None:
        answer = (301, {"Location": "https://weir.example/v0/topics/t"}, "moved")
        with self.assertRaises(weirmq.Unexpected) as got:
            self.client(transport=kit.Scripted(answer)).publish("t", 1)
        self.assertIn("sends requests on to https://weir.example: use that address", str(got.exception))

    def test_a_settlement_says_that_an_answer_was_lost(self: Any) -> None:
        answer = (200, {}, {"acked": 0, "skipped": [1]})
        again = self.client(transport=kit.Scripted(LOST, answer)).ack(job())
        self.assertEqual((again.count, again.skipped, again.repeated), (0, (1,), True))
        self.assertFalse(self.client(transport=kit.Scripted(answer)).ack(job()).repeated)

    def test_the_key_is_a_header_and_in_no_text(self: Any) -> None:
        script = kit.Scripted(REFUSED)
        with mock.patch.dict(os.environ, {"WEIR_API_KEY": "from-env"}):
            clients = [self.client(transport=script, retry_for=0), self.client(transport=script, retry_for=0, key="mine")]
        for client, key in zip(clients, ("from-env", "mine")):
            with self.assertRaises(weirmq.Unreachable) as got:
                client.claim("q")
            self.assertEqual(script.requests[-1].headers["Authorization"], f"Bearer {key}")
            self.assertNotIn(key, f"{got.exception!r} {got.exception}")

    def test_addresses_are_checked(self: Any) -> None:
        for url in ("127.0.0.1:4000", "ftp://h", "http://h/path", "http://user:secret@h", "http://a,b", "http://h:port"):
            with self.assertRaises(ValueError) as got:
                self.kind(url=url)
            self.assertNotIn("secret", str(got.exception))
        with mock.patch.dict(os.environ, {"WEIR_URL": "http://h/path"}):
            with self.assertRaisesRegex(ValueError, "^WEIR_URL: "):
                self.kind()
        with self.assertRaises(ValueError) as got:
            self.kind(key="secret\n")
        self.assertNotIn("secret", str(got.exception))

    def test_what_is_no_json_is_refused_before_it_is_sent(self: Any) -> None:
        client = self.client(transport=kit.Scripted(WRITTEN))
        for data in (b"bytes", float("nan"), "\ud800", {1, 2}):
            with self.assertRaises((TypeError, ValueError)):
                client.publish("t", data)


class Package(unittest.TestCase):
    def test_it_is_installed_with_its_types(self) -> None:
        self.assertEqual(importlib.metadata.version("weirmq"), weirmq.__version__)
        self.assertTrue(importlib.resources.files("weirmq").joinpath("py.typed").is_file())
        for name in weirmq.__all__:
            self.assertTrue(hasattr(weirmq, name), name)

    def test_both_clients_have_the_same_calls(self) -> None:
        def calls(kind: type) -> dict[str, list[str]]:
            public = {n: getattr(kind, n) for n in dir(kind) if not n.startswith("_")}
            return {n: list(inspect.signature(f).parameters) for n, f in public.items() if callable(f)}

        self.assertEqual(calls(weirmq.Client), calls(weirmq.AsyncClient))
        for kind in (weirmq.Client, weirmq.AsyncClient):
            for name in calls(kind):
                self.assertTrue(inspect.getdoc(getattr(kind, name)), name)


class Pauses(unittest.TestCase):
    def test_pauses_grow_and_are_scattered(self) -> None:
        self.assertEqual([_retry.backoff(n, lambda: 0.0) for n in (1, 2, 3, 50)], [0.05, 0.1, 0.2, 2.0])
        self.assertEqual(_retry.backoff(1, lambda: 1.0), 0.025)

    def test_retry_after_is_a_least_and_scattered(self) -> None:
        error = weirmq.WeirError("throttled", 429, "", retry_after=4.0)
        self.assertEqual(_retry.pause_before(1, error, lambda: 0.0), 4.0)
        self.assertEqual(_retry.pause_before(1, error, lambda: 1.0), 6.0)

    def test_no_server_sends_a_client_away_for_good(self) -> None:
        self.assertEqual(_retry.retry_after({"Retry-After": "999999999"}, {}), 60.0)
        self.assertEqual(_retry.retry_after({"Retry-After": "7"}, {"retry_after_ms": 1500}), 1.5)
        self.assertEqual(_retry.retry_after({"Retry-After": "7"}, {"retry_after_ms": 9e9}), 60.0)

    def test_retry_after_may_be_a_date(self) -> None:
        noon, then = "Wed, 21 Oct 2015 12:00:00 GMT", "Wed, 21 Oct 2015 12:00:07 GMT"
        for date, header, want in (
            (noon, then, 7.0),  # of clocks that are years behind
            (noon, "Wednesday, 21-Oct-15 12:00:07 GMT", 7.0),
            (noon, "Wed Oct 21 12:00:07 2015", 7.0),
            (noon, "Wed, 21 Oct 2201 12:00:00 GMT", 60.0),
            (then, noon, 0.0),
            ("", "Wed, 21 Oct 2201 12:00:00 GMT", 60.0),
            ("", then, 0.0),
            (noon, "soon", None),
            (noon, "-7", None),
            (noon, "", None),
            (noon, "Wed, 99 Oct 2015 12:00:00 GMT", None),
        ):
            answer = httpx.Response(503, headers={"Date": date, "Retry-After": header})
            error = _retry.error_of(answer)
            assert error is not None
            self.assertEqual(error.retry_after, want, (date, header))

    def test_failed_jobs_wait_longer_each_time(self) -> None:
        for deliveries, longest in ((1, 1000), (3, 4000), (40, 60_000)):
            j = job()
            j.deliveries = deliveries
            for _ in range(20):
                self.assertTrue(longest / 2 <= _work.retry_delay(j, ValueError()) <= longest)


class Frames(unittest.TestCase):
    STREAM = b'retry: 100\n\n: hb 1\n\nid: a\nevent: record\ndata: {"x":1}\ndata: 2\n\nevent: e\r\ndata:z\r\n\r\nid: cut\ndata: off'

    def test_frames_come_out_however_the_stream_is_cut(self) -> None:
        want = [_sse.Frame("a", "record", '{"x":1}\n2'), _sse.Frame("", "e", "z")]
        for size in (1, 2, 7, 1000):
            parser = _sse.FrameParser()
            chunks = [self.STREAM[i : i + size] for i in range(0, len(self.STREAM), size)]
            self.assertEqual([f for c in chunks for f in parser.feed(c)], want)
            self.assertEqual(parser.retry, 0.1)

    def test_a_frame_without_end_is_an_error(self) -> None:
        for piece in (b"data: aaaa\n", b"aaaaaaaaaaa", b"x: aaaaaaa\n"):
            parser = _sse.FrameParser(largest=100)
            with self.assertRaises(weirmq.Unexpected):
                for _ in range(20):
                    list(parser.feed(piece))
        parser = _sse.FrameParser(largest=100)
        self.assertEqual(sum(len(list(parser.feed(b"data: aaaa\n\n"))) for _ in range(20)), 20)

    def test_an_id_that_no_header_can_hold_is_none(self) -> None:
        (frame,) = _sse.FrameParser().feed(b"id: a\nid: b\0c\ndata: 1\n\n")
        self.assertEqual(frame.id, "a")

    def test_what_is_no_text_is_an_error(self) -> None:
        with self.assertRaises(weirmq.Unexpected):
            list(_sse.FrameParser().feed(b"data: \xff\n\n"))

    def test_a_hint_neither_makes_a_client_spin_nor_sends_it_away(self) -> None:
        for hint, seconds in (("0", 0.05), ("49", 0.05), ("1500", 1.5), ("60001", 60.0), ("9" * 5000, 60.0), ("-1", None), ("soon", None)):
            parser = _sse.FrameParser()
            list(parser.feed(f"retry: {hint}\n".encode()))
            self.assertEqual(parser.retry, seconds, hint[:9])


class Following(unittest.TestCase):
    def follower(self) -> Follower:
        f = Follower({"a": 3, "b": 0}, False, None, None)
        f.opened({"wid": "wid_1", "topics": {}})
        f.streaming(httpx.Response(200))
        return f

    def frame(self, event: str, id: str = "", **body: Any) -> bytes:
        return f"id: {id}\nevent: {event}\ndata: {json.dumps(body)}\n\n".encode()

    def starts(self, f: Follower) -> Any:
        return json.loads(f.ask().body or b"")["topics"]

    def test_it_goes_on_behind_the_last_frame(self) -> None:
        f = self.follower()
        record = self.frame("record", "id7", topic="a", to_seq=5, records=[{"$seq": 4}, {"$seq": 5}])
        self.assertEqual([r.seq for r in f.feed(record + b"id: half\nevent: record\n")], [4, 5])  # type: ignore[union-attr]
        f.failed(weirmq.Unreachable("cut", sent=True))
        self.assertFalse(f.needs_session)
        self.assertEqual(f.headers()["Last-Event-ID"], "id7")

    def test_without_an_id_it_makes_a_session_from_its_own_positions(self) -> None:
        f = self.follower()
        f.failed(weirmq.Unreachable("cut", sent=True))
        self.assertTrue(f.needs_session)
        self.assertEqual(self.starts(f), {"a": {"from_seq": 3}, "b": {"from_seq": 0}})

    def test_a_session_that_is_gone_is_replaced(self) -> None:
        f = self.follower()
        list(f.feed(self.frame("record", "i", topic="a", to_seq=9, records=[])))
        with self.assertRaises(SessionLost) as got:
            list(f.feed(self.frame("error", code=410, message="gone")))
        f.failed(got.exception)
        self.assertTrue(f.needs_session)
        self.assertEqual(self.starts(f)["a"], {"from_seq": 9})

    def test_a_topic_that_was_created_again_is_read_from_its_start(self) -> None:
        f = self.follower()
        frame = self.frame("tombstone", "i", topic="a", gap_from=1, gap_to=4, earliest_seq=1, reason="from_seq_too_old")
        (gap,) = f.feed(frame)
        self.assertEqual((gap.reason, gap.cursor), ("recreated", 0))  # type: ignore[union-attr]
        f.failed(SessionLost("410", ""))
        self.assertEqual(self.starts(f)["a"], {"from_seq": 0})

    def test_the_tail_is_where_the_first_session_began(self) -> None:
        f = Follower({"a": 0}, True, None, None)
        self.assertEqual(self.starts(f), {"a": {"tail": True}})
        f.opened({"wid": "w", "topics": {"a": {"from_seq": 42}}})
        self.assertEqual(self.starts(f), {"a": {"from_seq": 42}})

    def test_it_ends_when_all_topics_are_gone(self) -> None:
        f = self.follower()
        list(f.feed(self.frame("topic-deleted", topic="a")))
        with self.assertRaises(weirmq.Unreachable):
            f.ended()
        missing = weirmq.WeirError("topic_not_found", 404, "", {"topic": "a"})
        self.assertEqual(f.failed(missing), ([weirmq.TopicDeleted("a")], 0.0))
        f.streaming(httpx.Response(200))
        list(f.feed(self.frame("topic-deleted", topic="b")))
        f.ended()
        self.assertTrue(f.done)

    def test_a_stream_that_ends_while_a_topic_is_there_again_is_lost(self) -> None:
        f = self.follower()
        list(f.feed(self.frame("topic-deleted", topic="a") + self.frame("topic-deleted", topic="b")))
        list(f.feed(self.frame("record", "i", topic="a", to_seq=1, records=[{"$seq": 1}])))
        with self.assertRaises(weirmq.Unreachable):
            f.ended()
        self.assertFalse(f.done)

    def test_what_a_connection_said_of_topics_that_are_gone_counts_for_it_alone(self) -> None:
        f = self.follower()
        list(f.feed(self.frame("topic-deleted", "i", topic="a") + self.frame("topic-deleted", "j", topic="b")))
        f.failed(weirmq.Unreachable("cut", sent=True))
        f.streaming(httpx.Response(200))
        with self.assertRaises(weirmq.Unreachable):
            f.ended()

    def test_pauses_grow_up_to_the_servers_hint_and_begin_anew_with_a_frame(self) -> None:
        f, cut = self.follower(), weirmq.Unreachable("cut", sent=True)
        for _ in range(20):
            last = f.failed(cut)[1]
        self.assertTrue(1.0 <= last <= 2.0, last)
        list(f.feed(b"retry: 10000\n\n" + self.frame("caught-up", "i", topic="a", head_seq=3)))
        self.assertLessEqual(f.failed(cut)[1], 0.05)
        for _ in range(20):
            last = f.failed(cut)[1]
        self.assertTrue(5.0 <= last <= 10.0, last)
        self.assertEqual(f.failed(SessionLost("server_shutting_down", "")), ([], 10.0))
        self.assertFalse(f.needs_session)

    def test_a_session_that_is_gone_needs_no_patience(self) -> None:
        for code in ("410", "not_found"):
            f = self.follower()
            list(f.feed(b"retry: 60000\n\n" + self.frame("caught-up", "i", topic="a", head_seq=3)))
            for _ in range(20):
                last = f.failed(SessionLost(code, ""))[1]
            self.assertLessEqual(last, 2.0)
            self.assertTrue(f.needs_session)

    def test_a_certificate_that_is_not_trusted_ends_it(self) -> None:
        with self.assertRaises(_retry.Untrusted):
            self.follower().failed(_retry.Untrusted("no", sent=False))

    def test_a_topic_that_was_never_there_is_an_error(self) -> None:
        f = Follower({"a": 0}, False, None, None)
        with self.assertRaises(weirmq.WeirError):
            f.failed(weirmq.WeirError("topic_not_found", 404, "", {"topic": "a"}))
        with self.assertRaises(ValueError):
            Follower({}, False, None, None)

    def test_an_answer_that_is_no_session_is_unexpected(self) -> None:
        for wid in (None, "", 7):
            with self.assertRaises(weirmq.Unexpected):
                Follower({"a": 0}, False, None, None).opened({"wid": wid})

    def test_a_refusal_ends_it(self) -> None:
        with self.assertRaises(weirmq.WeirError):
            self.follower().failed(weirmq.WeirError("unauthorized", 401, ""))

    def test_a_session_that_is_another_keys_by_now_is_replaced(self) -> None:
        f = self.follower()
        list(f.feed(self.frame("record", "i", topic="a", to_seq=9, records=[])))
        refused = httpx.Response(401, json={"error": {"code": "unauthorized", "message": "another key's"}})
        with self.assertRaises(SessionLost) as got:
            f.streaming(refused)
        f.failed(got.exception)
        self.assertTrue(f.needs_session)
        self.assertEqual(self.starts(f)["a"], {"from_seq": 9})
        f.opened({"wid": "wid_2", "topics": {}})
        with self.assertRaises(weirmq.WeirError) as again:  # a key that is refused for good
            f.streaming(refused)
        with self.assertRaises(weirmq.WeirError):
            f.failed(again.exception)

    def test_frames_of_later_versions_are_skipped_and_broken_ones_are_errors(self) -> None:
        f = self.follower()
        self.assertEqual(list(f.feed(self.frame("novelty", x=1) + self.frame("error", code=429))), [])
        with self.assertRaises(weirmq.Unexpected):
            list(f.feed(self.frame("record", topic="a")))


class Shelves(unittest.TestCase):
    def test_leases_are_extended_when_a_third_is_used_up(self) -> None:
        shelf = _work.Shelf(4, 30.0)
        shelf.put(job(1), 100.0)
        shelf.put(job(2), 101.0)
        self.assertEqual((shelf.free(), shelf.next_due(104.0)), (2, 6.0))
        self.assertEqual(shelf.due(104.0, False), [])
        self.assertEqual([h.job.seq for h in shelf.due(110.0, False)], [1, 2])  # the second is due soon
        self.assertEqual(len(shelf.due(100.0, True)), 2)

    def test_a_claim_whose_answer_was_lost_is_followed_by_a_small_one(self) -> None:
        shelf = _work.Shelf(8, 30.0)
        shelf.lost(weirmq.Unreachable("not sent", sent=False))
        shelf.lost(weirmq.WeirError("throttled", 429, "later"))
        self.assertEqual(shelf.free(), 8)
        shelf.lost(weirmq.Unreachable("no answer in time", sent=True))
        self.assertEqual(shelf.free(), 1)
        shelf.answered(1, 1, 9.0)  # it takes its time
        shelf.answered(1, 0, 0.1)  # the queue is empty
        self.assertEqual(shelf.free(), 1)
        for asked in (1, 2, 4):
            self.assertEqual(shelf.free(), asked)
            shelf.answered(asked, asked, 7.0)
        self.assertEqual(shelf.free(), 8)

    def test_a_job_that_comes_again_is_known(self) -> None:
        shelf = _work.Shelf(4, 30.0)
        old = shelf.put(job(1), 100.0)
        again = job(1)
        again.lease_id = "lease_later"
        self.assertEqual((shelf.again([again]), shelf.again([job(2)])), ([old], []))
        old.over = True
        shelf.put(again, 200.0)
        self.assertEqual([h.job for h in shelf.due(300.0, False)], [again])

    def test_a_worker_that_cannot_be_is_refused(self) -> None:
        for concurrency, lease_ms in ((0, 30_000), (1, 99), (1, 86_400_001)):
            with self.assertRaises(ValueError):
                weirmq.Client("http://127.0.0.1:1").worker("q", print, concurrency=concurrency, lease_ms=lease_ms)

    def test_jobs_of_two_queues_are_not_settled_at_once(self) -> None:
        other = job()
        other.topic = "elsewhere"
        for jobs in ((), (job(), other)):
            with self.assertRaises(ValueError):
                _calls.settle("ack", jobs)


class Late(unittest.TestCase):
    """Jobs of a claim that was answered when the worker had been stopped."""

    def returned(self, path: str, body: bytes | None) -> weirmq.Settled:
        self.calls.append((path, json.loads(body or b"")))
        return weirmq.Settled(1)

    def setUp(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def check(self, summary: weirmq.WorkSummary) -> None:
        self.assertEqual(summary, weirmq.WorkSummary(claimed=1, nacked=1))
        ((path, body),) = self.calls
        self.assertEqual((path, body["lease_ids"], body["started"]), ("/v0/topics/q/nack", ["lease_1"], False))

    def test_an_asynchronous_worker_gives_them_back(self) -> None:
        async def main() -> weirmq.WorkSummary:
            async with weirmq.AsyncClient("http://127.0.0.1:1") as weir:

                async def call(call: Any, **options: Any) -> Any:
                    if not call.path.endswith("/claim"):
                        return self.returned(call.path, call.body)
                    worker.stop()
                    return _calls.Claimed([job()], 0.0)

                worker = weir.worker("q", print, signals=False)  # type: ignore[arg-type]
                with mock.patch.object(weir, "_call", call):
                    return await worker.run()

        self.check(asyncio.run(main()))

    def test_a_worker_of_threads_gives_them_back(self) -> None:
        def claim(*_: Any) -> Any:
            worker.stop()
            return _calls.Claimed([job()], 0.0)

        def call(http: Any, settings: Any, call: Any, *options: Any) -> Any:
            return self.returned(call.path, call.body)

        with weirmq.Client("http://127.0.0.1:1") as weir:
            worker = weir.worker("q", print, signals=False)
            with mock.patch.object(_threads.Line, "call", claim), mock.patch.object(_threads, "call_blocking", call):
                self.check(worker.run())


if __name__ == "__main__":
    unittest.main()
