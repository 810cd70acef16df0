"""The calls on a real server, WEIR_URL: what is stored, read, claimed and settled."""

from __future__ import annotations

import itertools
import os
import threading
import time
import unittest
from typing import Any

import kit

import weirmq


@kit.pair
class Publishing(kit.Case):
    def test_data_comes_back_as_it_was_sent(self: Any) -> None:
        weir, topic = self.client(), kit.name("data")
        values = [None, True, 7, 2**53, 1.5, "Grüße \u2028 \U0001f600", [1, [2]], {"a": {"$seq": "mine"}}, ""]
        done = weir.publish_batch(topic, values)
        self.assertEqual((done.count, done.first_seq, done.created), (len(values), 1, True))
        self.assertEqual([r.data for r in weir.diff(topic).records], values)

    def test_a_message_keeps_what_it_carries(self: Any) -> None:
        weir, topic = self.client(), kit.name("carries")
        weir.publish(topic, 1, tag="new", node="n1", meta={"k": "v"}, priority="high", fair_key="f")
        (record,) = weir.diff(topic).records
        self.assertEqual(
            (record.tag, record.node, record.meta, record.priority, record.fair_key), ("new", "n1", {"k": "v"}, "high", "f")
        )
        self.assertGreater(record.ts, 1_600_000_000_000)

    def test_answers_are_asked_for_unpacked(self: Any) -> None:
        watched = kit.Losing(lost=0)
        weir, topic = self.client(transport=watched), kit.name("plain")
        weir.publish(topic, "x" * 5000)
        self.assertEqual(len(weir.diff(topic).records[0].data), 5000)
        self.assertEqual([r.headers["Accept-Encoding"] for r in watched.requests], ["identity", "identity"])

    def test_a_lost_answer_stores_nothing_twice(self: Any) -> None:
        losing = kit.Losing(lost=3)
        weir, topic = self.client(transport=losing), kit.name("lost")
        done = weir.publish_batch(topic, ["a", "b", "c"])
        self.assertTrue(done.deduped)
        self.assertEqual((done.seqs, len(losing.requests)), ((1, 2, 3), 4))
        self.assertEqual([r.data for r in weir.diff(topic).records], ["a", "b", "c"])

    def test_without_a_key_a_lost_answer_is_an_error(self: Any) -> None:
        weir, topic = self.client(transport=kit.Losing(lost=1)), kit.name("nokey")
        with self.assertRaises(weirmq.Unreachable) as got:
            weir.publish(topic, 1, idempotency_key=weirmq.NO_KEY)
        self.assertTrue(got.exception.sent)
        self.assertEqual(len(weir.diff(topic).records), 1)

    def test_a_key_of_the_program_holds_over_clients(self: Any) -> None:
        topic = kit.name("key")
        first = self.client().publish(topic, 1, idempotency_key="order-7")
        again = self.client().publish(topic, 1, idempotency_key="order-7")
        self.assertEqual((first.deduped, again.deduped, again.seqs), (False, True, first.seqs))
        other = self.client().publish(topic, 2, idempotency_key="order-7")
        self.assertEqual([w["code"] for w in other.warnings], ["idempotency_key_reused"])

    def test_a_refusal_has_code_status_and_message(self: Any) -> None:
        weir, topic = self.client(), kit.name("full")
        weir.put_topic(topic, cap_records=1, discard="reject")
        weir.publish(topic, 1)
        with self.assertRaises(weirmq.WeirError) as got:
            weir.publish(topic, 2)
        self.assertEqual((got.exception.code, got.exception.status), ("topic_full", 422))
        self.assertTrue(got.exception.message)
        with self.assertRaises(weirmq.WeirError) as got:
            weir.publish(kit.name("absent"), 1, create=False)
        self.assertEqual((got.exception.code, got.exception.status), ("topic_not_found", 404))


@kit.pair
class Reading(kit.Case):
    def test_pages_lead_through_a_topic(self: Any) -> None:
        weir, topic = self.client(), kit.name("pages")
        weir.publish_batch(topic, list(range(10)))
        got, cursor, pages = [], 0, 0
        while True:
            page = weir.diff(topic, cursor, limit=4)
            got += [r.data for r in page.records]
            cursor, pages = page.next_from_seq, pages + 1
            if page.caught_up:
                break
        self.assertEqual((got, pages, page.lag), (list(range(10)), 3, 0))

    def test_a_topic_with_a_misspelt_field_is_not_made(self: Any) -> None:
        weir, topic = self.client(), kit.name("typo")
        for make in (weir.put_topic, weir.ensure_topic):
            with self.assertRaises(weirmq.WeirError) as got:
                make(topic, typ="queue")
            self.assertIn("typ", str(got.exception))
        with self.assertRaises(weirmq.WeirError) as got:
            weir.topic(topic)
        self.assertEqual(got.exception.code, "topic_not_found")

    def test_a_diff_waits_for_what_comes(self: Any) -> None:
        weir, topic = self.client(), kit.name("poll")
        weir.put_topic(topic)
        later = threading.Timer(0.2, weir.publish, (topic, "late"))
        later.start()
        page = weir.diff(topic, wait_ms=30_000)
        later.join()
        self.assertEqual([r.data for r in page.records], ["late"])

    def test_what_was_lost_is_told(self: Any) -> None:
        weir, topic = self.client(), kit.name("gap")
        weir.put_topic(topic, cap_records=2)
        weir.publish_batch(topic, list(range(5)))
        gap = weir.diff(topic).gap
        self.assertEqual((gap.first_seq, gap.last_seq, gap.reason), (1, 3, "cap"))
        first = next(weir.follow(topic))
        self.assertEqual((type(first), first.first_seq, first.last_seq, first.cursor), (weirmq.Gap, 1, 3, 3))

    def test_records_of_a_node_are_left_out(self: Any) -> None:
        weir, topic = self.client(), kit.name("nodes")
        weir.publish_batch(topic, [weirmq.Message(n, node=n) for n in ("me", "m", "you")])
        for nodes, left in (("me", ["m", "you"]), (["me", "you"], ["m"]), (("m",), ["me", "you"])):
            self.assertEqual([r.data for r in weir.diff(topic, node=nodes).records], left)
            events = weir.follow(topic, node=nodes)
            self.assertEqual([e.data for e in itertools.takewhile(lambda e: isinstance(e, weirmq.Record), events)], left)
            events.close()

    def test_topics_are_made_once_and_deleted(self: Any) -> None:
        weir, topic = self.client(), kit.name("ensure")
        self.assertTrue(weir.ensure_topic(topic, type="queue", max_deliveries=3))
        self.assertFalse(weir.ensure_topic(topic, type="queue"))
        self.assertEqual(weir.topic(topic)["config"]["max_deliveries"], 3)
        self.assertTrue(weir.delete_topic(topic))
        self.assertFalse(weir.delete_topic(topic))


@kit.pair
class Following(kit.Case):
    def test_backlog_then_what_is_written(self: Any) -> None:
        weir, topic = self.client(), kit.name("follow")
        weir.publish_batch(topic, ["a", "b"])
        events = weir.follow(topic, 1)
        self.assertEqual(next(events).data, "b")
        self.assertEqual(next(events), weirmq.CaughtUp(topic, 2))
        weir.publish(topic, "c", tag="t")
        third = next(events)
        self.assertEqual((third.seq, third.data, third.tag), (3, "c", "t"))
        events.close()

    def test_the_tail_of_several_topics(self: Any) -> None:
        weir, one, two = self.client(), kit.name("one"), kit.name("two")
        weir.publish(one, "old")
        weir.publish(two, "old")
        events = weir.follow({one: 0, two: 0}, tail=True)
        self.assertEqual({next(events).topic, next(events).topic}, {one, two})  # caught up, both
        weir.publish(two, "new")
        self.assertEqual(next(events).data, "new")
        events.close()

    def test_it_ends_with_its_topics(self: Any) -> None:
        weir, topic = self.client(), kit.name("gone")
        weir.publish(topic, 1)
        events = weir.follow(topic)
        next(events), next(events)
        weir.delete_topic(topic)
        self.assertEqual(list(events), [weirmq.TopicDeleted(topic)])

    def test_a_topic_that_is_not_there_is_an_error(self: Any) -> None:
        with self.assertRaises(weirmq.WeirError) as got:
            next(self.client().follow(kit.name("absent")))
        self.assertEqual(got.exception.code, "topic_not_found")

    def test_a_server_that_is_not_there_is_an_error(self: Any) -> None:
        with self.assertRaises(weirmq.Unreachable):
            next(self.client(url="http://127.0.0.1:1", retry_for=0.2).follow("t"))


@kit.pair
class Jobs(kit.Case):
    def queue(self: Any, weir: Any, *items: Any, **config: Any) -> str:
        topic = kit.name("queue")
        weir.put_topic(topic, type="queue", **config)
        if items:
            weir.publish_batch(topic, items)
        return topic

    def test_claim_ack_nack_extend(self: Any) -> None:
        weir = self.client()
        topic = self.queue(weir, "a", "b", "c")
        a, b = weir.claim(topic, max=2, lease_ms=60_000)
        self.assertEqual((a.data, a.seq, a.deliveries, a.node), ("a", 1, 1, weir.node))
        longer = weir.extend(a, lease_ms=120_000)
        self.assertEqual((longer.count, longer.skipped), (1, ()))
        self.assertGreater(longer.deadlines[a.seq], a.deadline)
        self.assertEqual(weir.ack(a).count, 1)
        self.assertEqual(weir.nack(b).count, 1)
        self.assertEqual(weir.ack(a, b).skipped, (1, 2))
        again = weir.claim(topic, max=10)
        self.assertEqual([(j.data, j.deliveries) for j in again], [("b", 2), ("c", 1)])

    def test_a_claim_waits_for_a_job(self: Any) -> None:
        weir = self.client()
        topic = self.queue(weir)
        later = threading.Timer(0.2, weir.publish, (topic, "late"))
        later.start()
        jobs = weir.claim(topic, wait_ms=30_000)
        later.join()
        self.assertEqual([j.data for j in jobs], ["late"])

    def test_delays_hold_jobs_back(self: Any) -> None:
        weir = self.client()
        topic = self.queue(weir)
        weir.publish_batch(topic, [weirmq.Message("later", delay_ms=3_600_000), "now"])
        (now,) = weir.claim(topic, max=10)
        weir.nack(now, delay_ms=3_600_000)
        self.assertEqual(weir.claim(topic, max=10), [])
        self.assertEqual(weir.topic(topic)["queue"]["delayed"], 2)

    def test_given_back_unstarted_it_counts_as_never_delivered(self: Any) -> None:
        weir = self.client()
        topic = self.queue(weir, "a")
        weir.nack(*weir.claim(topic), started=False)
        self.assertEqual(weir.claim(topic)[0].deliveries, 1)

    def test_an_ack_whose_answer_is_lost_is_done_once(self: Any) -> None:
        losing = kit.Losing(lost=1, matching="/ack")
        weir = self.client(transport=losing)
        topic = self.queue(weir, "a")
        done = weir.ack(*weir.claim(topic))
        self.assertEqual((done.skipped, done.repeated), ((1,), True))
        self.assertEqual(weir.topic(topic)["count"], 0)

    def test_a_lease_of_another_client_is_not_ended(self: Any) -> None:
        weir, other = self.client(), self.client()
        topic = self.queue(weir, "a")
        (job,) = weir.claim(topic)
        job.node = other.node
        self.assertEqual(other.ack(job).skipped, (1,))

    def test_a_log_has_no_jobs(self: Any) -> None:
        weir, topic = self.client(), kit.name("log")
        weir.put_topic(topic)
        with self.assertRaises(weirmq.WeirError) as got:
            weir.claim(topic)
        self.assertEqual((got.exception.code, got.exception.status), ("not_a_queue", 409))


@kit.pair
class Keys(kit.Case):
    """On a server with TLS of an authority of its own and keys: WEIR_TLS_URL, WEIR_TLS_CA."""

    def secure(self: Any, **options: Any) -> Any:
        return self.client(url=os.environ["WEIR_TLS_URL"], **({"verify": os.environ["WEIR_TLS_CA"]} | options))

    def test_a_key_lets_in_and_none_does_not(self: Any) -> None:
        topic = kit.name("keys")
        self.assertEqual(self.secure(key="secret").publish(topic, 1).count, 1)
        for key in ("", "wrong"):
            with self.assertRaises(weirmq.WeirError) as got:
                self.secure(key=key).publish(topic, 1)
            self.assertEqual((got.exception.code, got.exception.status), ("unauthorized", 401))
        with self.assertRaises(weirmq.WeirError) as got:
            self.secure(key="secret").put_topic(topic)
        self.assertEqual((got.exception.code, got.exception.status), ("forbidden", 403))

    def test_a_follow_sends_the_key(self: Any) -> None:
        weir, topic = self.secure(key="secret"), kit.name("keyed")
        weir.publish(topic, "x")
        self.assertEqual(next(weir.follow(topic)).data, "x")

    def test_a_stop_ends_a_claim_that_waits(self: Any) -> None:
        topic, done = kit.name("keyed"), threading.Event()
        url, ca = os.environ["WEIR_TLS_URL"], os.environ["WEIR_TLS_CA"]
        with weirmq.Client(url, verify=ca, key="owner") as weir:
            weir.publish(topic, 1, config={"type": "queue"})
            worker = weir.worker(topic, lambda job: done.set(), signals=False)
            began = time.monotonic()
            stop = threading.Thread(target=lambda: (done.wait(), time.sleep(0.3), worker.stop()))
            stop.start()
            self.assertEqual(worker.run(), weirmq.WorkSummary(claimed=1, acked=1))
            stop.join()
            self.assertLess(time.monotonic() - began, 20)  # not the 30 s of the claim
            weir.publish(topic, 2)
            self.assertEqual(len(weir.claim(topic)), 1)

    def test_a_certificate_of_nobody_known_is_refused_at_once(self: Any) -> None:
        with self.assertRaises(weirmq.Unreachable) as got:
            self.secure(key="secret", verify=True).publish(kit.name("tls"), 1)
        self.assertIn("not trusted", got.exception.message)
        self.assertFalse(got.exception.sent)


if __name__ == "__main__":
    unittest.main()
